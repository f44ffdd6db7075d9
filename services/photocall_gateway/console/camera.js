// Camera: a picture taken here and now; where the browser lends no camera, its own way of taking one.

import { el } from "./dom.js";

export class Camera {
  /** `taken` gets each picture as a File. */
  constructor(taken) {
    this.taken = taken;
    this.stream = null;
    this.video = el("video", { autoplay: true, playsinline: true, "aria-label": "What the camera sees" });
    this.video.muted = true;
    this.why = el("p", { class: "error", role: "alert" });
    this.shutter = el("button", { type: "button", class: "primary", on: { click: () => this.take() } }, "Take the picture");
    const close = el("button", { type: "button", class: "quiet", on: { click: () => this.dialog.close() } }, "Close");
    this.dialog = el(
      "dialog",
      { class: "camera", "aria-label": "Camera", on: { close: () => this.stop() } },
      this.video,
      this.why,
      el("div", { class: "row end" }, close, this.shutter),
    );
    this.input = el("input", { type: "file", accept: "image/*", capture: "environment", hidden: true, "aria-label": "Picture from the camera" });
    this.input.addEventListener("change", () => [...this.input.files].forEach(taken));
    document.body.append(this.dialog, this.input);
  }

  async open() {
    // Lent to pages of https and of this machine only; a phone takes pictures for a file field.
    if (!navigator.mediaDevices?.getUserMedia) {
      this.input.click();
      return;
    }
    this.why.textContent = "";
    this.shutter.disabled = true;
    this.dialog.showModal();
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1920 } } });
    } catch (error) {
      this.why.textContent = error.name === "NotAllowedError" ? "The browser was not allowed to use the camera." : "There is no camera that can be used.";
      return;
    }
    if (!this.dialog.open) {
      this.stop(); // closed while the browser asked
      return;
    }
    this.video.srcObject = this.stream;
    await this.video.play().catch(() => {});
    this.shutter.disabled = false;
    this.shutter.focus();
  }

  take() {
    const canvas = el("canvas", { width: this.video.videoWidth, height: this.video.videoHeight });
    canvas.getContext("2d").drawImage(this.video, 0, 0);
    const time = new Date().toTimeString().slice(0, 8).replaceAll(":", "-");
    canvas.toBlob((blob) => this.taken(new File([blob], `camera ${time}.jpg`, { type: "image/jpeg" })), "image/jpeg", 0.92);
    this.dialog.close();
  }

  stop() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
    this.video.srcObject = null;
  }
}
