// Fetching what a panel shows, again whenever its question changes.

import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { type Stream, address } from "./api";

const REST_MS = 400;

/** Whether the panel is in sight. One that is not asks and draws when the slider has rested. */
export const InSight = createContext(true);

/** Whether the page follows a running job. Then a panel out of sight keeps its last answer: each costs the job's machine time. */
export const Following = createContext(false);

/** Whether an element is in sight; true until the browser has said otherwise. */
export function useInSight(): [RefObject<HTMLElement>, boolean] {
  const element = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState(true);
  useEffect(() => {
    if (!element.current) return;
    const watch = new IntersectionObserver((entries) => setSeen(entries[entries.length - 1]!.isIntersecting), { rootMargin: "50px" });
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, seen];
}

/** The answer to a question; while a new one is on its way the old one stays. Later questions replace those under way. */
export function useAnswer<T>(path: string, values: Record<string, string | number | undefined>, wanted = true): [T | null, string] {
  const [answer, setAnswer] = useState<T | null>(null);
  const [problem, setProblem] = useState("");
  const seen = useContext(InSight), following = useContext(Following);
  const key = address(path, values);
  const asked = useRef({ busy: false, next: "", last: "" });
  useEffect(() => {
    const state = asked.current;
    if (!wanted || (state.next || state.last) === key) return;
    const begin = async () => {
      state.next = key;
      if (state.busy) return;
      state.busy = true;
      // One request at a time: a slider that is dragged asks for where it is when the last answer has come.
      while (state.next) {
        state.last = state.next;
        state.next = "";
        try {
          const response = await fetch(state.last);
          const value = await response.json();
          if (!response.ok) throw new Error(value.error ?? response.statusText);
          setAnswer(value as T);
          setProblem("");
        } catch (error) {
          setProblem(String(error instanceof Error ? error.message : error));
        }
      }
      state.busy = false;
    };
    if (seen) { void begin(); return; }
    if (following && state.last) return;
    const timer = setTimeout(() => void begin(), REST_MS);
    return () => clearTimeout(timer);
  }, [key, wanted, seen, following]);
  return [answer, problem];
}

/** What the server tells of a log, as long as it may grow and the page is visible. */
export function useStream(values: Record<string, string>): Stream | null {
  const [stream, setStream] = useState<Stream | null>(null);
  const place = address("stream", values);
  useEffect(() => {
    let source: EventSource | null = null, grows = true;
    const follow = () => {
      if (document.hidden || !grows) {
        source?.close();
        source = null;
      } else if (!source) {
        source = new EventSource(place);
        source.onmessage = (message) => {
          const facts = JSON.parse(message.data) as Stream;
          setStream(facts);
          grows = facts.live;
          if (!grows) follow();
        };
      }
    };
    follow();
    document.addEventListener("visibilitychange", follow);
    return () => {
      document.removeEventListener("visibilitychange", follow);
      source?.close();
    };
  }, [place]);
  return stream;
}
