// Turns: so many things at once, and the others after them in order.

export class Turns {
  constructor(most) {
    this.left = most;
    this.waiting = [];
  }

  /** What `call` gives, once it is its turn. */
  async take(call) {
    if (this.left > 0) this.left -= 1;
    else await new Promise((resolve) => this.waiting.push(resolve));
    try {
      return await call();
    } finally {
      const next = this.waiting.shift();
      if (next) next();
      else this.left += 1;
    }
  }
}
