// A part of the page with a title, and a table of any length of which only the rows in sight exist.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { InSight, useInSight } from "./hooks";

export const ROW = 26;
const AROUND = 10;

export function Panel({ title, wide, children }: { title: string; wide?: boolean; children: ComponentChildren }) {
  const [element, seen] = useInSight();
  return (
    <section ref={element} class={wide ? "panel wide" : "panel"} aria-label={title}>
      <h2>{title}</h2>
      <InSight.Provider value={seen}>{children}</InSight.Provider>
    </section>
  );
}

/** The rows that a scrolled list of rows shows, with some around them: the first one, how many, and what to call. */
export function useRowsInSight(height: number): [number, number, (top: number) => void] {
  const [first, setFirst] = useState(0);
  const scrolled = (top: number) => setFirst(Math.max(0, Math.floor(top / ROW / AROUND) * AROUND - AROUND));
  return [first, Math.ceil(height / ROW) + 3 * AROUND, scrolled];
}

interface Table { caption: string; head: string[]; first: number; count: number; height: number; scrolled: (top: number) => void; rows: ComponentChildren[][] }

/** A table whose rows from ``first`` are given; there are ``count``. */
export function LongTable({ caption, head, first, count, height, scrolled, rows }: Table) {
  const after = Math.max(0, count - first - rows.length);
  return (
    <div class="scroll" style={{ maxHeight: `${height}px` }} tabIndex={0} role="region" aria-label={caption} onScroll={(event) => scrolled(event.currentTarget.scrollTop)}>
      <table class="long" aria-rowcount={count + 1}>
        <caption class="hidden">{caption}</caption>
        <thead><tr aria-rowindex={1}>{head.map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
        <tbody>
          {first > 0 && <tr aria-hidden="true" style={{ height: `${first * ROW}px` }} />}
          {rows.map((row, index) => (
            <tr key={first + index} aria-rowindex={first + index + 2} style={{ height: `${ROW}px` }}>{row.map((each, place) => <td key={place}>{each}</td>)}</tr>
          ))}
          {after > 0 && <tr aria-hidden="true" style={{ height: `${after * ROW}px` }} />}
        </tbody>
      </table>
    </div>
  );
}
