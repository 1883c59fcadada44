// The slider over a log, with buttons and play. Arrow keys move it, as any slider.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const PLAY_MS = 150, PLAY_STEPS = 200;

interface Props {
  at: number | null; point: number; read: number; label: string; end: string; text: string;
  goTo: (seq: number) => void; go: (seq: number | null) => void; children: ComponentChildren;
}

export function Slider({ at, point, read, label, end, text, goTo, go, children }: Props) {
  const [playing, setPlaying] = useState(false);
  const latest = useRef({ point, read });
  latest.current = { point, read };
  useEffect(() => {
    if (!playing) return;
    const timer = setInterval(() => {
      const next = latest.current.point + Math.max(1, Math.round(latest.current.read / PLAY_STEPS));
      if (next >= latest.current.read) { setPlaying(false); go(null); } else go(next);
    }, PLAY_MS);
    return () => clearInterval(timer);
  }, [playing]);
  const isPast = at !== null, name = label.toLowerCase();
  const stopAt = (seq: number) => { setPlaying(false); goTo(seq); };
  return (
    <nav class="replay" aria-label="Point in the log">
      <button onClick={() => stopAt(1)} aria-label={`First ${name}`} disabled={!read}>|◀</button>
      <button onClick={() => stopAt(point - 1)} aria-label={`${label} before`} disabled={point <= 1}>◀</button>
      <button onClick={() => { if (!playing && !isPast) go(1); setPlaying(!playing); }} aria-pressed={playing} disabled={!read}>{playing ? "Pause" : "Play"}</button>
      <button onClick={() => stopAt(point + 1)} aria-label={`Next ${name}`} disabled={!isPast}>▶</button>
      <input type="range" min={1} max={Math.max(1, read)} value={point || 1} aria-label={label} aria-valuetext={text}
        onInput={(event) => stopAt(Number(event.currentTarget.value))} />
      <button onClick={() => { setPlaying(false); go(null); }} disabled={!isPast}>{end}</button>
      {children}
    </nav>
  );
}
