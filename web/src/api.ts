// What the server answers, and how to ask it. The shapes are those of elasticdl.dashboard.panels.

export interface JobRow { key: string; job: string; state: string; submitted: string; model: string; data: string }
export interface Stream {
  job: string; read: number; total: number; live: boolean; problem: string; first_s: number; last_s: number;
}
export interface Evidence { seq: number; seconds: number }
export interface Part {
  cause: string; title: string; useful: boolean; seconds: number; percent: number; evidence: Evidence[]; advice: string;
}
export interface Why { wall_s: number; useful_s: number; parts: Part[]; path: { phase: string; seconds: number; seq: number }[] }
export interface Pod {
  name: string; service: string; phase: string; pending: string; starts: number; tasks: string[]; slow: string;
}
export interface PodTable { rows: Pod[]; count: number; from: number }
export interface Progress {
  epoch: [number, number]; batches: [number, number]; records: number; loss: number | null; metrics: Record<string, number>;
  metrics_of: string; workers: [number, number]; ps: [number, number]; queue: [number, number]; elapsed_s: number; waiting: string;
}
export interface Evaluation { evaluation: number; epoch: number; step: number; final: boolean; metrics: Record<string, number | null> }
export interface Snapshot { ps: string; step: number; time_s: number; bytes: number; at: string }
export interface View {
  job: string; seq: number; time_s: number; event: string; state: string; message: string;
  progress?: Progress; tasks?: Record<string, number>; evaluations?: Evaluation[]; snapshots?: Snapshot[];
}
export type CurvePoint = [seq: number, step: number, time_s: number, value: number | null];
export interface Curves { points: Record<string, CurvePoint[]>; counts: Record<string, number> }
export type Span = [process: string, kind: string, start_s: number, end_s: number, start_seq: number, end_seq: number, text: string];
export type PlacementSince = [seq: number, time_s: number, version: number, runs: [start: number, end: number, ps: number][]];
export type Generation = [seq: number, time_s: number, number: number, members: string[], reason: string];
export type Mark = [kind: "evaluation" | "snapshot", process: string, time_s: number, seq: number, text: string];
export interface Timeline {
  processes: { name: string; service: string }[]; spans: Span[]; left_out: number;
  placements: PlacementSince[]; generations: Generation[]; marks: Mark[]; snapshots: number;
}
export interface EventRow { seq: number; time_s: number; name: string; text: string; reasons: string[] }
export interface TaskTable { columns: string[]; rows: string[][]; more: boolean; counts: Record<string, number> }
export interface Story { task: number; history: { seq: number; time_s: number; name: string; text: string }[] }
export interface Comparison {
  read: Stream[]; states: string[]; settings: [where: string, one: string, other: string][];
  numbers: [name: string, unit: string, one: number | null, other: number | null][];
}

export interface FleetJob {
  job: string; priority: number; queue: string; waiting: boolean; finished: boolean; suspended: boolean;
  workers: [running: number, wanted: number]; ps: [running: number, wanted: number]; remaining_s: number | null; reason: string;
}
export interface Decision { number: number; time_s: number; job: string; what: string; reason: string }
export interface Fleet {
  number: number; time_s: number; resources: [name: string, all: number, jobs: number, others: number, useful: number][];
  nodes: { name: string; pods: number; used: [name: string, used: number, all: number][] }[]; node_count: number; pod_count: number;
  jobs: FleetJob[]; job_count: number; pending: [starts: number, drains: number]; decisions: Decision[]; decision_count: number;
}

type Values = Record<string, string | number | undefined>;

export function address(path: string, values: Values): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== "") query.set(name, String(value));
  return `/api/${path}?${query}`;
}
