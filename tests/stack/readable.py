"""Whether people can use a page: controls that a screen reader can name, and texts that stand out enough."""

from __future__ import annotations

from playwright.sync_api import Page


def nameless(page: Page) -> list[str]:
    """Controls and pictures that have no name for a screen reader, as the browser's accessibility tree has them."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    roles = {"button", "link", "textbox", "searchbox", "combobox", "spinbutton", "checkbox", "img", "image", "dialog",
             "progressbar", "table", "form", "group", "figure"}  # fmt: skip
    seen = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
    assert len(seen) > 10
    unnamed = [node["role"]["value"] for node in seen if not node.get("name", {}).get("value", "").strip()]
    return [role for role in unnamed if role not in ("figure", "group")]


def pale(page: Page) -> list[str]:
    """Texts whose contrast with what is behind them is below 4.5 (WCAG 2.2, AA)."""
    found: list[str] = page.evaluate(
        """() => {
            const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            const rgb = (colour) => {
                canvas.clearRect(0, 0, 1, 1);
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data];
            };
            const light = ([r, g, b]) => [r, g, b]
                .map((v) => v / 255)
                .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const behind = (node) => {
                for (let at = node; at; at = at.parentElement) {
                    const colour = rgb(getComputedStyle(at).backgroundColor);
                    if (colour[3] === 255) return colour;
                }
                return rgb("Canvas");
            };
            const wrong = [];
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const node = walker.currentNode.parentElement;
                const text = walker.currentNode.textContent.trim();
                if (!text || !node.checkVisibility() || node.closest("noscript, svg, :disabled")) continue;
                const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
                const contrast = (a + 0.05) / (b + 0.05);
                if (contrast < 4.5) wrong.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`);
            }
            return wrong;
        }"""
    )
    return found
