// Views: which part of the page is seen; the address says it, so that back, forward and bookmarks work.

export class Views {
  /** `views` has a function for each id: it is called with whether its view is seen. */
  constructor(views) {
    this.views = views;
    this.now = null;
    window.addEventListener("hashchange", () => this.show(true));
    this.show(false);
  }

  show(moved) {
    const asked = location.hash.slice(1) || "ask";
    const name = Object.hasOwn(this.views, asked) ? asked : (this.now ?? "ask"); // other places of the page are no views
    if (name === this.now) return;
    for (const [id, tell] of Object.entries(this.views)) {
      document.getElementById(id).hidden = id !== name;
      if (id === this.now) tell(false);
    }
    for (const link of document.querySelectorAll("[data-view]")) {
      if (link.dataset.view === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.now = name;
    document.title = name === "ask" ? "photocall" : `photocall: ${name}`;
    if (moved) window.scrollTo(0, 0);
    this.views[name](true);
  }

  /** What is seen is asked for again. */
  again() {
    this.views[this.now](true);
  }
}
