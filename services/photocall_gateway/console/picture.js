// Picture: a file that somebody has chosen; hashed and uploaded once, however often it is asked about.

import { sha256 } from "./sha256.js";

const PAGED = /\.(pdf|tiff?)$/i;

export class Picture {
  constructor(file, name = file.name) {
    this.file = file;
    this.name = name || "pasted picture";
    this.url = URL.createObjectURL(file);
    this.page = null; // of a file of several, from 1
    this.hash = null; // a promise, once it was asked for; likewise below
    this.sent = null;
  }

  /** Whether it may have several pages. */
  get paged() {
    return PAGED.test(this.name) || /pdf|tiff/.test(this.file.type);
  }

  sha256() {
    this.hash ??= sha256(this.file);
    return this.hash;
  }

  /** Puts it on the server, unless it is there; gives its hash. Raises ApiError. */
  upload(api, waiting) {
    this.sent ??= this.put(api, waiting).catch((error) => {
      this.sent = null;
      throw error;
    });
    return this.sent;
  }

  async put(api, waiting) {
    const hash = await this.sha256();
    const headers = { "content-type": "application/octet-stream" };
    await api.patiently("PUT", `/v1/images/${hash}`, { body: this.file, headers }, waiting);
    return hash;
  }

  /** It may have been forgotten since: the next question sends it again. */
  forgotten() {
    this.sent = null;
  }

  /** Its entry among a request's assets. */
  asset(hash) {
    return { type: "image", sha256: hash, ...(this.page ? { page: this.page } : {}) };
  }

  /** The query that names the view of it that is asked about. */
  get view() {
    return this.page ? `?page=${this.page}` : "";
  }

  /** Nobody shows its file any more; it can still be asked about. */
  drop() {
    URL.revokeObjectURL(this.url);
  }
}
