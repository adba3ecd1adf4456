//! One thread that runs the tasks of all machines over virtual time.
//!
//! ```text
//! ready ──▶ the task with the lowest number is polled, until none is ready
//! none  ──▶ the next event: time moves there, one timer fires
//! ```
//! **A seed decides all.** No two events are at the same instant, and all that an event wakes has run before the next one. So of two things that a task waits for
//! one alone is there, and an order that is left to chance (`cluster::tasks`) does not show.
//!
//! **Machines.** A task belongs to the machine whose task has spawned it. Each machine has its own clock, which runs faster or slower than time. One that stands still
//! runs nothing: its timers fire when it goes on, one after the other. One that loses its power loses all its tasks at once. Machine 0 is the network and the hand
//! that breaks things: its clock is time itself.
//!
//! Left out on purpose: how long a task takes. It takes no time.

use cluster::tasks::{Task, Tasks, Timer};
use env::{Clock, Random, SeededRandom};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// The machine of the network.
pub const OUTSIDE: usize = 0;

/// Lines that are kept for a seed that fails.
const KEPT: usize = 60;

/// A machine's clock, and until when it stands still.
#[derive(Clone, Copy)]
struct Machine {
    /// Thousandths: local time = offset + time * rate / 1000.
    rate: u64,
    offset: u64,
    paused: u64,
}

struct State {
    tasks: BTreeMap<u64, (usize, Option<Task>)>,
    next: u64,
    events: BTreeMap<u64, (usize, Arc<Timer>)>,
    machines: Vec<Machine>,
    /// The machine whose task is polled.
    current: usize,
    lines: VecDeque<String>,
}

/// See the head of the file. Times are nanoseconds since the beginning of the run.
pub struct Executor {
    state: Mutex<State>,
    ready: Arc<Mutex<BTreeSet<u64>>>,
    now: AtomicU64,
    dice: SeededRandom,
    /// Stands for all that has happened, in order.
    trace: AtomicU64,
    polls: AtomicU64,
    loud: bool,
}

/// Makes its task ready.
struct Woken {
    task: u64,
    ready: Arc<Mutex<BTreeSet<u64>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.ready.lock().insert(self.task);
    }
}

impl Executor {
    /// Only machine 0 is there. `loud`: each line is printed.
    pub fn new(seed: u64, loud: bool) -> Executor {
        let outside = Machine {
            rate: 1000,
            offset: 0,
            paused: 0,
        };
        Executor {
            state: Mutex::new(State {
                tasks: BTreeMap::new(),
                next: 1,
                events: BTreeMap::new(),
                machines: vec![outside],
                current: OUTSIDE,
                lines: VecDeque::new(),
            }),
            ready: Arc::default(),
            now: AtomicU64::new(0),
            dice: SeededRandom::new(seed ^ 0x5eed),
            trace: AtomicU64::new(0xcbf2_9ce4_8422_2325),
            polls: AtomicU64::new(0),
            loud,
        }
    }

    /// One more machine, whose clock runs at so many thousandths of time; its number.
    pub fn add_machine(&self, rate: u64, offset: u64) -> usize {
        let mut state = self.state.lock();
        let paused = 0;
        state.machines.push(Machine {
            rate,
            offset,
            paused,
        });
        state.machines.len() - 1
    }

    /// Time.
    pub fn time(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// What this machine's clock says.
    pub fn local(&self, machine: usize) -> u64 {
        let m = self.state.lock().machines[machine];
        m.offset + self.time() / 1000 * m.rate + self.time() % 1000 * m.rate / 1000
    }

    /// Runs a task on this machine.
    pub fn spawn_on(&self, machine: usize, task: impl Future<Output = ()> + Send + 'static) {
        self.put(machine, Box::pin(task));
    }

    fn put(&self, machine: usize, task: Task) -> u64 {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.tasks.insert(number, (machine, Some(task)));
        drop(state);
        self.ready.lock().insert(number);
        number
    }

    /// The machine stands still until then. Only forward.
    pub fn pause(&self, machine: usize, until: u64) {
        let mut state = self.state.lock();
        let paused = &mut state.machines[machine].paused;
        *paused = (*paused).max(until);
    }

    /// Until when the machine stands still; not after now: it runs.
    pub fn paused(&self, machine: usize) -> u64 {
        self.state.lock().machines[machine].paused
    }

    /// The machine goes on now.
    pub fn go_on(&self, machine: usize) {
        self.state.lock().machines[machine].paused = 0;
    }

    /// The machine loses its power: its tasks are gone.
    pub fn kill(&self, machine: usize) {
        let mut state = self.state.lock();
        let of = |(id, (m, _)): (&u64, &(usize, _))| (*m == machine).then_some(*id);
        let ids: Vec<u64> = state.tasks.iter().filter_map(of).collect();
        let gone: Vec<_> = ids.iter().map(|id| state.tasks.remove(id)).collect();
        state.machines[machine].paused = 0;
        let before = std::mem::replace(&mut state.current, machine);
        drop(state);
        // What a task holds may end others.
        drop(gone);
        self.state.lock().current = before;
    }

    /// All tasks are gone. What they hold, this executor among it, is free then.
    pub fn clear(&self) {
        loop {
            let mut state = self.state.lock();
            let tasks = std::mem::take(&mut state.tasks);
            let events = std::mem::take(&mut state.events);
            drop(state);
            if tasks.is_empty() && events.is_empty() {
                return;
            }
        }
    }

    /// Runs until `ended` says so, or until this time. `ended` is asked after each step, with the machine that made it.
    pub fn run(&self, until: u64, mut ended: impl FnMut(usize) -> bool) {
        loop {
            while let Some(task) = self.next_ready() {
                let machine = self.poll(task);
                if machine.is_some_and(&mut ended) {
                    return;
                }
            }
            let Some((at, timer)) = self.next_event(until) else {
                return;
            };
            self.now.store(at, Ordering::SeqCst);
            timer.fire();
        }
    }

    fn next_ready(&self) -> Option<u64> {
        self.ready.lock().pop_first()
    }

    fn next_event(&self, until: u64) -> Option<(u64, Arc<Timer>)> {
        let mut state = self.state.lock();
        loop {
            let (at, (machine, timer)) = state.events.pop_first()?;
            // Nothing waits for it any more.
            if Arc::strong_count(&timer) == 1 {
                continue;
            }
            let paused = state.machines[machine].paused;
            if paused > at {
                state.plan(paused, machine, timer);
            } else if at > until {
                state.plan(at, machine, timer);
                return None;
            } else {
                return Some((at, timer));
            }
        }
    }

    /// Polls the task once. Its machine; none: there is no such task any more.
    fn poll(&self, number: u64) -> Option<usize> {
        let mut state = self.state.lock();
        let (machine, task) = state.tasks.get_mut(&number)?;
        let (machine, mut task) = (*machine, task.take()?);
        state.current = machine;
        drop(state);
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.mark(&[self.time(), number]);
        let waker = Waker::from(Arc::new(Woken {
            task: number,
            ready: self.ready.clone(),
        }));
        let done = task.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.state.lock();
        // None: it was ended while it ran.
        let place = state.tasks.get_mut(&number).filter(|_| done.is_pending());
        if let Some(place) = place {
            place.1 = Some(task);
            state.current = OUTSIDE;
            return Some(machine);
        }
        let ended = state.tasks.remove(&number);
        drop(state);
        drop((task, ended));
        self.state.lock().current = OUTSIDE;
        Some(machine)
    }

    fn mark(&self, words: &[u64]) {
        let mut trace = self.trace.load(Ordering::Relaxed);
        for byte in words.iter().flat_map(|w| w.to_le_bytes()) {
            trace = (trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.trace.store(trace, Ordering::Relaxed);
    }

    /// Notes what has happened.
    pub fn note(&self, line: &str) {
        let all = line.bytes().map(u64::from);
        self.mark(&all.collect::<Vec<_>>());
        let line = format!("{:>9.3} {line}", self.time() as f64 / 1e6);
        if self.loud {
            println!("{line}");
        }
        let mut state = self.state.lock();
        if state.lines.len() == KEPT {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    /// The last lines.
    pub fn last_lines(&self) -> String {
        let state = self.state.lock();
        let lines: Vec<&str> = state.lines.iter().map(String::as_str).collect();
        lines.join("\n")
    }

    /// A number that stands for all that has happened, and how many steps it was.
    pub fn trace(&self) -> (u64, u64) {
        let (trace, polls) = (&self.trace, &self.polls);
        (trace.load(Ordering::Relaxed), polls.load(Ordering::Relaxed))
    }

    /// A random number below this one.
    pub fn below(&self, n: u64) -> u64 {
        self.dice.next_u64() % n
    }
}

impl State {
    /// At this time, or as soon after it as no other event is.
    fn plan(&mut self, mut at: u64, machine: usize, timer: Arc<Timer>) {
        while self.events.contains_key(&at) {
            at += 1;
        }
        self.events.insert(at, (machine, timer));
    }
}

impl Tasks for Executor {
    fn spawn(&self, task: Task) -> u64 {
        let current = self.state.lock().current;
        self.put(current, task)
    }

    fn end(&self, task: u64) {
        let gone = self.state.lock().tasks.remove(&task);
        drop(gone);
    }

    fn now(&self) -> u64 {
        let current = self.state.lock().current;
        self.local(current)
    }

    fn fire_at(&self, at: u64, timer: Arc<Timer>) {
        let mut state = self.state.lock();
        let current = state.current;
        let m = state.machines[current];
        let real = u128::from(at.saturating_sub(m.offset)) * 1000 / u128::from(m.rate) + 1;
        // One that is far away never comes.
        let real = u64::try_from(real).unwrap_or(u64::MAX).min(u64::MAX / 2);
        let first = self.time() + 1;
        state.plan(real.max(first), current, timer);
    }

    fn random(&self) -> u64 {
        self.dice.next_u64()
    }
}

/// One machine's clock.
pub struct MachineClock {
    pub executor: Arc<Executor>,
    pub machine: usize,
}

impl Clock for MachineClock {
    fn monotonic_nanos(&self) -> u64 {
        self.executor.local(self.machine)
    }

    fn unix_micros(&self) -> i64 {
        i64::try_from(self.monotonic_nanos() / 1000).unwrap_or(i64::MAX)
    }

    fn sleep(&self, _duration: Duration) {
        unreachable!("no thread waits in a simulation");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::tasks::enter;
    use cluster::time::{Instant, sleep};

    const MS: u64 = 1_000_000;

    /// Clocks that run differently, and a machine that stands still while its timers run out: they fire one by one when it goes on.
    #[test]
    fn machines_have_their_own_time() {
        let executor = Arc::new(Executor::new(1, false));
        let entered = enter(executor.clone());
        let (slow, fast) = (executor.add_machine(500, 7), executor.add_machine(2000, 0));
        let seen = Arc::new(Mutex::new(vec![]));
        for (machine, ms) in [(slow, 10), (fast, 10), (fast, 60), (fast, 60)] {
            let (executor_, seen) = (executor.clone(), seen.clone());
            executor.spawn_on(machine, async move {
                let from = Instant::now();
                sleep(Duration::from_millis(ms)).await;
                let slept = (Instant::now() - from).as_millis();
                seen.lock().push((machine, slept, executor_.time()));
            });
        }
        executor.run(8 * MS, |_| false);
        assert_eq!(executor.time() / MS, 5, "the last event");
        executor.pause(fast, 100 * MS);
        executor.run(200 * MS, |_| false);
        let seen = seen.lock();
        let of = |machine| seen.iter().filter(move |s| s.0 == machine);
        assert_eq!(
            of(slow).map(|s| (s.1, s.2 / MS)).collect::<Vec<_>>(),
            [(10, 20)]
        );
        let fast: Vec<_> = of(fast).map(|s| (s.1, s.2 / MS)).collect();
        assert_eq!(fast, [(10, 5), (200, 100), (200, 100)]);
        let times: BTreeSet<u64> = seen.iter().map(|s| s.2).collect();
        assert_eq!(times.len(), 4, "one event at an instant");
        drop(entered);
    }

    /// A machine without power runs nothing of what it ran.
    #[test]
    fn a_machine_that_loses_its_power_loses_its_tasks() {
        let executor = Arc::new(Executor::new(1, false));
        let _entered = enter(executor.clone());
        let machine = executor.add_machine(1000, 0);
        let ran = Arc::new(AtomicU64::new(0));
        for of in [OUTSIDE, machine] {
            let ran = ran.clone();
            executor.spawn_on(of, async move {
                sleep(Duration::from_millis(5)).await;
                ran.fetch_add(1, Ordering::SeqCst);
            });
        }
        executor.run(MS, |_| false);
        executor.kill(machine);
        executor.run(10 * MS, |_| false);
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }
}
