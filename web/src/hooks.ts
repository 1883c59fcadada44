// Fetching what a panel shows, again whenever its question changes.

import { useEffect, useRef, useState } from "preact/hooks";
import { address, ask } from "./api";

/** The answer to a question; while a new one is on its way the old one stays. Later questions replace those under way. */
export function useAnswer<T>(path: string, values: Record<string, string | number | undefined>, wanted = true): [T | null, string] {
  const [answer, setAnswer] = useState<T | null>(null);
  const [problem, setProblem] = useState("");
  const key = address(path, values);
  const asked = useRef({ busy: false, next: "" });
  useEffect(() => {
    if (!wanted) return;
    const state = asked.current;
    state.next = key;
    if (state.busy) return;
    state.busy = true;
    // One request at a time: a slider that is dragged asks for where it is when the last answer has come.
    void (async () => {
      while (state.next) {
        const now = state.next;
        state.next = "";
        try {
          const response = await fetch(now);
          const value = await response.json();
          if (!response.ok) throw new Error(value.error ?? response.statusText);
          setAnswer(value as T);
          setProblem("");
        } catch (error) {
          setProblem(String(error instanceof Error ? error.message : error));
        }
      }
      state.busy = false;
    })();
  }, [key, wanted]);
  return [answer, problem];
}

export { ask };
