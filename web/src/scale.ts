// Time from left to right, in which long gaps without any process are narrow: between two runs of a job may be days.

import type { Span } from "./api";

const LONG = 0.1, NARROW = 0.03;

export interface Gap { start_s: number; end_s: number }

export class Scale {
  readonly gaps: Gap[] = [];
  private readonly narrow_s: number;

  constructor(spans: Span[], first_s: number, last_s: number) {
    const lived = spans.filter(([, kind]) => kind !== "ended" && kind !== "away").sort((one, other) => one[2] - other[2]);
    let until_s = lived[0]?.[2] ?? last_s;
    const found: Gap[] = [];
    for (const [, , start_s, end_s] of lived) {
      if (start_s > until_s) found.push({ start_s: until_s, end_s: start_s });
      until_s = Math.max(until_s, end_s || Infinity);
    }
    const busy_s = Math.max(0.001, last_s - first_s - found.reduce((sum, each) => sum + each.end_s - each.start_s, 0));
    this.narrow_s = NARROW * busy_s;
    this.gaps = found.filter((each) => each.end_s - each.start_s > LONG * busy_s);
  }

  /** The place of a time: seconds, of which gaps have few. */
  place(time_s: number): number {
    let place = time_s;
    for (const { start_s, end_s } of this.gaps) {
      if (time_s >= end_s) place -= end_s - start_s - this.narrow_s;
      else if (time_s > start_s) place -= (time_s - start_s) * (1 - this.narrow_s / (end_s - start_s));
    }
    return place;
  }

  /** Inverse of ``place``. */
  time(place: number): number {
    let time_s = place;
    for (const { start_s, end_s } of this.gaps) {
      if (time_s <= start_s) break;
      const inside = time_s - start_s;
      time_s += inside < this.narrow_s ? inside * ((end_s - start_s) / this.narrow_s - 1) : end_s - start_s - this.narrow_s;
    }
    return time_s;
  }
}
