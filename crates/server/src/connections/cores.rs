//! Where connections run: a thread per core, each with its own sockets, its own queue and its own wait for both.
//!
//! ```text
//!            +--------------------- a core's turn ----------------------+
//! events ──▶ | tasks that are ready, in order ──▶ their replies, in order | ──▶ wait for events
//!            +----------------------------------------------------------+
//! wakers (a lock is granted, a commit is durable) ──▶ the queue; one write to the event fd if the core waits
//! ```
//! A connection has a core, so a message costs no hand-over between threads; it moves to another only for good (`core_choice.rs` decides,
//! `socket.rs` does it, where the connection waits for its client). In a turn every connection that has
//! something to do runs first and all send afterwards ([`turns::afterwards`]): a client that reads many connections is woken once and
//! finds many replies, and the wait costs one call for all.
//!
//! **Statements that take long** run where they stand, and nobody has to say so beforehand. Each step of a task is counted in the
//! core's `turn`; a clock that finds the same step at two ticks in a row takes the core away from its thread
//! ([`Cores::watch`]): another thread drives it from then on, and the old one ends when its step does (`lost.rs`).
//!
//! **Statements that take some milliseconds** are not taken away, but they may not fill a turn: a task is *heavy* if the clock has ticked during its last
//! step. A step of a microsecond meets a tick once in thousands, one of some milliseconds mostly; no step has to ask what time it is. Heavy tasks wait in a queue of their own. A turn runs every light task that is ready, then heavy ones until [`HEAVY`] has passed, one at least. So a point read
//! waits for one heavy step at most, whatever number of clients sends large statements.
//!
//! Tasks may use timers and channels of the runtime that the cores were made in, not its sockets.
//!
//! Left out on purpose: stealing. A connection that is busy for longer than a tick costs the others of its core that long, once.

use super::core_choice::{Busy, SKEW};
use super::lost::Lost;
use env::turns;
use futures::task::AtomicWaker;
use mio::event::Event;
use mio::{Events, Interest, Poll, Registry, Token};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll as Step, Wake, Waker};
use std::time::{Duration, Instant};
use tracing::error;

/// Syntax trees are walked by recursion; what nests deeper than this allows is refused by the parser.
const STACK: usize = 64 << 20;
/// Events taken at once.
const EVENTS: usize = 256;
/// Time that heavy tasks have in a turn.
const HEAVY: Duration = Duration::from_millis(2);
/// The token of a core's own waker.
const WAKER: Token = Token(usize::MAX);
/// A core's `turn`: who drives it in the high bits, his steps in the low ones; odd inside a step.
const GENERATION: u32 = 40;
/// Ticks of the clock in a period of [`Busy`].
const PERIOD: u32 = 20;

thread_local! {
    /// The core that this thread drives.
    static DRIVEN: RefCell<Option<Arc<Core>>> = const { RefCell::new(None) };
    /// Its place among those that have driven it.
    static MINE: Cell<u64> = const { Cell::new(0) };
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The core on which the task that runs goes on.
    static MOVED: Cell<Option<Arc<Core>>> = const { Cell::new(None) };
}

/// The number of the core that runs this; none: this thread is no core's.
pub fn number() -> Option<usize> {
    Some(NUMBER.get()).filter(|n| *n != usize::MAX)
}

/// The core that runs this.
pub fn current() -> Option<Arc<Core>> {
    DRIVEN.with_borrow(Option::clone)
}

/// The task that runs is about to block: another thread drives the core from here on, at once and not when the clock finds out.
pub fn aside() {
    let Some(core) = current() else { return };
    let turn = core.turn.load(Ordering::SeqCst);
    if turn % 2 == 1 && turn >> GENERATION == MINE.get() {
        core.take_away(turn);
    }
}

/// Goes on in the next turn, behind all that is ready and all that has come meanwhile.
pub async fn next_turn() {
    let mut asked = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut asked, true) {
            return Step::Ready(());
        }
        cx.waker().wake_by_ref();
        Step::Pending
    })
    .await;
}

/// All cores of a server.
pub struct Cores {
    cores: Vec<Arc<Core>>,
    /// Each core's `turn` at the last tick.
    seen: Mutex<Vec<u64>>,
    lost: Mutex<Lost>,
    shared: Arc<Common>,
}

/// What the cores of a server have in common.
#[derive(Default)]
struct Common {
    all: OnceLock<Vec<Weak<Core>>>,
    ticks: AtomicU32,
    /// Connections that went to another core.
    moves: AtomicUsize,
}

/// One core. Its thread may change; see the head of the file.
pub struct Core {
    runtime: tokio::runtime::Handle,
    ready: Mutex<VecDeque<Arc<Task>>>,
    /// Ready tasks whose last step was long.
    heavy: Mutex<VecDeque<Arc<Task>>>,
    late: Mutex<VecDeque<Arc<Task>>>,
    poll: Mutex<(Poll, Events)>,
    registry: Registry,
    waker: mio::Waker,
    /// Its thread waits for events, or is about to.
    parked: AtomicBool,
    /// The system's number of the thread that drives it; 0: none yet.
    thread: AtomicI32,
    turn: AtomicU64,
    sources: Mutex<Sources>,
    /// Sockets it has.
    load: AtomicUsize,
    /// Those that are used.
    busy: Busy,
    number: usize,
    common: Arc<Common>,
    stopping: AtomicBool,
}

impl Cores {
    /// Starts `n` cores inside a runtime.
    pub fn start(n: usize) -> io::Result<Cores> {
        let shared = Arc::new(Common::default());
        // Who is to move all the time needs a place to go to.
        let least = 1 + usize::from(env::fault::planted("gate.restless"));
        let cores: Vec<_> = (0..n.max(least))
            .map(|i| Core::new(i, shared.clone()))
            .collect::<Result<_, _>>()?;
        _ = shared.all.set(cores.iter().map(Arc::downgrade).collect());
        for c in &cores {
            Core::spawn(c.clone(), 0)?;
        }
        let seen = Mutex::new(vec![0; cores.len()]);
        Ok(Cores {
            cores,
            seen,
            lost: Mutex::default(),
            shared,
        })
    }

    /// The core for a socket whose packets come from this processor: those of one client thread belong together, because it is woken
    /// once by a core that answers all of them. Unless that core has many more sockets than another: then the one with the fewest.
    pub fn pick(&self, from: Option<usize>) -> &Arc<Core> {
        let load = |c: &&Arc<Core>| c.load.load(Ordering::Relaxed);
        let least = self.cores.iter().min_by_key(load).expect("one at least");
        from.map(|cpu| &self.cores[cpu % self.cores.len()])
            .filter(|c| load(c) < load(&least) + SKEW)
            .unwrap_or(least)
    }

    /// How many times a connection went to another core.
    pub fn moves(&self) -> usize {
        self.shared.moves.load(Ordering::Relaxed)
    }

    /// Gives cores whose thread is in one step for longer than since the last call to other threads. For a clock.
    pub fn watch(&self) {
        let ticks = self.shared.ticks.fetch_add(1, Ordering::Relaxed);
        // Now, that `period` is another.
        if ticks.wrapping_add(1).is_multiple_of(PERIOD) {
            self.cores.iter().for_each(|c| c.busy.turn());
        }
        let mut seen = self.seen.lock();
        for (core, seen) in self.cores.iter().zip(seen.iter_mut()) {
            let turn = core.turn.load(Ordering::SeqCst);
            if turn % 2 == 1 && turn == *seen {
                let thread = core.thread.load(Ordering::Relaxed);
                self.lost.lock().add(thread);
                core.take_away(turn);
            }
            *seen = turn;
        }
        self.lost.lock().look();
    }

    /// Has every core do this once, after what it is doing.
    pub fn each(&self, f: impl Fn() + Clone + Send + 'static) {
        for c in &self.cores {
            let f = f.clone();
            c.run(async move { f() });
        }
    }

    /// Ends the threads once nothing is ready.
    pub fn stop(&self) {
        for c in &self.cores {
            c.stopping.store(true, Ordering::SeqCst);
            c.unpark();
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Core {
    fn new(number: usize, common: Arc<Common>) -> io::Result<Arc<Core>> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = mio::Waker::new(&registry, WAKER)?;
        Ok(Arc::new(Core {
            runtime: tokio::runtime::Handle::current(),
            ready: Mutex::default(),
            heavy: Mutex::default(),
            late: Mutex::default(),
            poll: Mutex::new((poll, Events::with_capacity(EVENTS))),
            registry,
            waker,
            parked: AtomicBool::new(false),
            thread: AtomicI32::new(0),
            turn: AtomicU64::new(0),
            sources: Mutex::default(),
            load: AtomicUsize::new(0),
            busy: Busy::default(),
            number,
            common,
            stopping: AtomicBool::new(false),
        }))
    }

    /// A thread that drives the core from this turn on.
    fn spawn(core: Arc<Core>, turn: u64) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("canon".into());
        thread.stack_size(STACK).spawn(move || core.drive(turn))?;
        Ok(())
    }

    fn take_away(self: &Arc<Core>, turn: u64) {
        let next = ((turn >> GENERATION) + 1) << GENERATION;
        let held = (Ordering::SeqCst, Ordering::SeqCst);
        if self
            .turn
            .compare_exchange(turn, next, held.0, held.1)
            .is_err()
        {
            return;
        }
        // Nobody drives the core now: this must come to pass.
        while let Err(e) = Core::spawn(self.clone(), next) {
            error!(error = %e, "could not start a thread");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn drive(self: Arc<Core>, mut turn: u64) {
        let _inside = self.runtime.enter();
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
        NUMBER.set(self.number);
        MINE.set(turn >> GENERATION);
        DRIVEN.set(Some(self.clone()));
        'driving: loop {
            // There are some when the last thread did not come to them.
            if !self.run_late(&mut turn) {
                break;
            }
            let n = self.ready.lock().len();
            for i in (0..n).rev() {
                let Some(task) = self.ready.lock().pop_front() else {
                    break;
                };
                turns::set_left(i);
                if !self.step(&task, &mut turn) {
                    break 'driving;
                }
            }
            turns::set_left(0);
            if !self.run_late(&mut turn) || !self.run_heavy(&mut turn) {
                break;
            }
            if self.stopping.load(Ordering::SeqCst) && !self.has_ready() {
                break;
            }
            self.wait();
        }
        base::memory::flush();
    }

    fn run_late(&self, turn: &mut u64) -> bool {
        loop {
            let Some(task) = self.late.lock().pop_front() else {
                return true;
            };
            if !self.step(&task, turn) {
                return false;
            }
        }
    }

    /// Runs heavy tasks until they have had their time, each once at most. False: the core is another thread's now.
    fn run_heavy(&self, turn: &mut u64) -> bool {
        let n = self.heavy.lock().len();
        if n == 0 {
            return true;
        }
        let until = Instant::now() + HEAVY;
        for _ in 0..n {
            let Some(task) = self.heavy.lock().pop_front() else {
                break;
            };
            if !self.step(&task, turn) || !self.run_late(turn) {
                return false;
            }
            if Instant::now() >= until {
                break;
            }
        }
        true
    }

    /// Whether a task is ready, heavy or not.
    fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty() || !self.heavy.lock().is_empty()
    }

    /// Runs a task until it waits. False: the core is somebody else's now.
    fn step(&self, task: &Arc<Task>, turn: &mut u64) -> bool {
        *turn += 1;
        self.turn.store(*turn, Ordering::Release);
        task.run(&self.common.ticks);
        let held = (Ordering::AcqRel, Ordering::Relaxed);
        let mine = self.turn.compare_exchange(*turn, *turn + 1, held.0, held.1);
        *turn += 1;
        mine.is_ok()
    }

    /// Waits for events if nothing is ready, and wakes those whom they concern.
    fn wait(&self) {
        let mut held = self.poll.lock();
        let (poll, events) = &mut *held;
        self.parked.store(true, Ordering::SeqCst);
        let idle = !self.has_ready()
            && self.late.lock().is_empty()
            && !self.stopping.load(Ordering::SeqCst);
        match poll.poll(events, (!idle).then_some(Duration::ZERO)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => events.clear(),
            Err(e) => panic!("waiting for sockets failed: {e}"),
        }
        self.parked.store(false, Ordering::SeqCst);
        let sources = self.sources.lock();
        turns::set_alone(sources.len() == 1);
        for e in events.iter().filter(|e| e.token() != WAKER) {
            if let Some(Some(s)) = sources.all.get(e.token().0) {
                s.happened(e);
            }
        }
    }

    fn push(&self, task: Arc<Task>) {
        let queue = match task.heavy.load(Ordering::Relaxed) {
            true => &self.heavy,
            false => &self.ready,
        };
        queue.lock().push_back(task);
        self.unpark();
    }

    fn unpark(&self) {
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            self.waker.wake().expect("an event fd can be written");
        }
    }

    /// Runs a future on this core. A panic in it ends it and nothing else.
    pub fn run(self: &Arc<Core>, f: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Task {
            core: Mutex::new(self.clone()),
            state: AtomicU8::new(QUEUED),
            heavy: AtomicBool::new(false),
            future: Mutex::new(Some(Box::pin(f))),
        });
        self.push(task);
    }

    /// Registers a socket; its events come to the readiness given.
    pub(super) fn register(
        &self,
        s: &mut impl mio::event::Source,
    ) -> io::Result<(Token, Arc<Readiness>)> {
        let readiness = Arc::new(Readiness::default());
        Ok((self.put(s, &readiness)?, readiness))
    }

    fn put(&self, s: &mut impl mio::event::Source, r: &Arc<Readiness>) -> io::Result<Token> {
        let token = self.sources.lock().add(r.clone());
        if let Err(e) = self
            .registry
            .register(s, token, Interest::READABLE | Interest::WRITABLE)
        {
            self.sources.lock().remove(token);
            return Err(e);
        }
        self.load.fetch_add(1, Ordering::Relaxed);
        Ok(token)
    }

    /// The period that the clock is in.
    pub(super) fn period(&self) -> u32 {
        self.common.ticks.load(Ordering::Relaxed) / PERIOD
    }

    /// A socket of this core is used in this period.
    pub(super) fn is_busy(&self) {
        self.busy.one();
    }

    /// This core's number, and the busy connections of all by number. `None`: the cores are on their way down, and nobody moves.
    pub(super) fn view(&self) -> Option<(usize, Vec<usize>)> {
        if self.stopping.load(Ordering::SeqCst) {
            return None;
        }
        let count = |c: &Weak<Core>| Some(c.upgrade()?.busy.count());
        let busy: Option<Vec<_>> = self.common.all.get()?.iter().map(count).collect();
        Some((self.number, busy?))
    }

    /// Takes a socket, and the task that runs and owns it, to another core of those in [`Core::view`]. After an error the socket is on no
    /// core.
    pub(super) fn hand_over(
        self: &Arc<Core>,
        s: &mut impl mio::event::Source,
        (token, r): (Token, &Arc<Readiness>),
        to: usize,
    ) -> io::Result<(Arc<Core>, Token)> {
        let all = self.common.all.get();
        let to = all
            .and_then(|a| a.get(to)?.upgrade())
            .unwrap_or_else(|| self.clone());
        self.forget(s, token);
        let new = to.put(s, r)?;
        self.busy.moves(&to.busy);
        self.common.moves.fetch_add(1, Ordering::Relaxed);
        MOVED.set(Some(to.clone()));
        Ok((to, new))
    }

    /// The opposite.
    pub(super) fn forget(&self, s: &mut impl mio::event::Source, token: Token) {
        _ = self.registry.deregister(s);
        self.sources.lock().remove(token);
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sockets of a core by token.
#[derive(Default)]
struct Sources {
    all: Vec<Option<Arc<Readiness>>>,
    free: Vec<usize>,
}

impl Sources {
    fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn add(&mut self, r: Arc<Readiness>) -> Token {
        let at = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[at] = Some(r);
        Token(at)
    }

    /// An event that is on its way may reach the next owner of the token: he looks and finds nothing.
    fn remove(&mut self, t: Token) {
        self.all[t.0] = None;
        self.free.push(t.0);
    }
}

/// What a socket may be ready for, and who waits for it. Events say when that begins and not that it lasts, so a flag is
/// lowered *before* the call that may find the socket not ready, and a waiter looks at it again after he has said that he waits.
#[derive(Default)]
pub(super) struct Readiness {
    pub read: Side,
    pub write: Side,
}

impl sql::session::ClientSide for Readiness {
    fn has_gone(&self) -> bool {
        self.read.ended.load(Ordering::SeqCst)
    }
}

/// One direction.
#[derive(Default)]
pub(super) struct Side {
    ready: AtomicBool,
    /// Ready from now on: the end, or an error.
    ended: AtomicBool,
    waker: AtomicWaker,
}

impl Readiness {
    fn happened(&self, e: &Event) {
        if e.is_readable() || e.is_read_closed() || e.is_error() {
            self.read.raise(e.is_read_closed() || e.is_error());
        }
        if e.is_writable() || e.is_write_closed() || e.is_error() {
            self.write.raise(e.is_write_closed() || e.is_error());
        }
    }
}

impl Side {
    pub fn raise(&self, ended: bool) {
        if ended {
            self.ended.store(true, Ordering::SeqCst);
        }
        self.ready.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// More is to be had.
    pub fn keep(&self) {
        self.ready.store(true, Ordering::SeqCst);
    }

    /// The end has not been reached yet.
    pub fn keep_end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Before a call. Gives whether the end was in sight; a call that would block shows that it was not.
    pub fn lower(&self) -> bool {
        self.ready.store(false, Ordering::SeqCst);
        self.ended.swap(false, Ordering::SeqCst)
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst) || self.ended.load(Ordering::SeqCst)
    }

    pub fn poll_ready(&self, cx: &Context<'_>) -> Step<()> {
        if self.is_ready() {
            return Step::Ready(());
        }
        self.waker.register(cx.waker());
        if self.is_ready() {
            Step::Ready(())
        } else {
            Step::Pending
        }
    }
}

const IDLE: u8 = 0;
/// In a queue.
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
/// Woken while it ran.
const AGAIN: u8 = 3;
const DONE: u8 = 4;

/// A connection.
struct Task {
    core: Mutex<Arc<Core>>,
    state: AtomicU8,
    /// The clock has ticked in its last step.
    heavy: AtomicBool,
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl Task {
    /// Runs it until it waits. `ticks` counts the clock's.
    fn run(self: &Arc<Task>, ticks: &AtomicU32) {
        self.state.store(RUNNING, Ordering::SeqCst);
        let mut future = self.future.lock();
        let Some(f) = &mut *future else { return };
        let waker = Waker::from(self.clone());
        let step = AssertUnwindSafe(|| f.as_mut().poll(&mut Context::from_waker(&waker)));
        let before = ticks.load(Ordering::Relaxed);
        // The panic has been reported by its hook; the connection is closed by the drop.
        let done = catch_unwind(step).map_or(true, |s| s.is_ready());
        let ticked = ticks.load(Ordering::Relaxed) != before;
        self.heavy.store(ticked, Ordering::Relaxed);
        // Nobody pushes it before its state says that it does not run.
        if let Some(to) = MOVED.take() {
            *self.core.lock() = to;
        }
        if done {
            turns::take_late();
            self.state.store(DONE, Ordering::SeqCst);
            _ = catch_unwind(AssertUnwindSafe(|| drop(future.take())));
            return;
        }
        drop(future);
        if turns::take_late() {
            self.state.store(QUEUED, Ordering::SeqCst);
            let core = self.core.lock();
            core.late.lock().push_back(self.clone());
            // The core may be another thread's since, and that one waits.
            core.unpark();
            return;
        }
        let held = (Ordering::SeqCst, Ordering::SeqCst);
        if self
            .state
            .compare_exchange(RUNNING, IDLE, held.0, held.1)
            .is_err()
        {
            self.state.store(QUEUED, Ordering::SeqCst);
            self.core.lock().push(self.clone());
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let held = (Ordering::SeqCst, Ordering::SeqCst);
        loop {
            let (from, to) = match self.state.load(Ordering::SeqCst) {
                IDLE => (IDLE, QUEUED),
                RUNNING => (RUNNING, AGAIN),
                _ => return,
            };
            if self
                .state
                .compare_exchange(from, to, held.0, held.1)
                .is_ok()
            {
                if to == QUEUED {
                    self.core.lock().push(self.clone());
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn in_runtime(f: impl FnOnce(&Cores)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let _inside = runtime.enter();
        f(&Cores::start(1).unwrap());
    }

    #[test]
    fn tasks_wake_one_another_and_a_panic_ends_one_only() {
        in_runtime(|cores| {
            let (said, heard) = mpsc::channel();
            let (mut tx, mut rx) = futures::channel::mpsc::unbounded();
            cores.pick(None).run(async { panic!("on purpose") });
            cores.pick(None).run(async move {
                while let Some(n) = futures::StreamExt::next(&mut rx).await {
                    said.send(n).unwrap();
                }
            });
            cores.pick(None).run(async move {
                for n in 0..100 {
                    turns::afterwards().await;
                    futures::SinkExt::send(&mut tx, n).await.unwrap();
                }
            });
            assert_eq!(
                heard.iter().collect::<Vec<i32>>(),
                (0..100).collect::<Vec<_>>()
            );
        });
    }

    #[test]
    fn a_socket_that_is_used_all_the_time_is_one() {
        in_runtime(|cores| {
            let core = cores.pick(None);
            let mut period = u32::MAX;
            // It comes in the middle of a period.
            (0..PERIOD / 2).for_each(|_| cores.watch());
            for tick in 0..5 * PERIOD {
                // As a socket does at each read.
                if std::mem::replace(&mut period, core.period()) != core.period() {
                    core.is_busy();
                }
                assert_eq!(core.view(), Some((0, vec![1])), "tick {tick}");
                cores.watch();
            }
            cores.stop();
            assert_eq!(core.view(), None);
        });
    }

    #[test]
    fn who_blocks_keeps_the_core_from_nobody() {
        in_runtime(|cores| {
            let (release, wait) = mpsc::channel::<()>();
            cores.pick(None).run(async move {
                aside();
                wait.recv().unwrap();
            });
            let (said, heard) = mpsc::channel();
            cores.pick(None).run(async move { said.send(()).unwrap() });
            heard.recv().unwrap();
            release.send(()).unwrap();
        });
    }

    #[test]
    fn one_heavy_step_at_most_stands_before_a_light_task() {
        in_runtime(|cores| {
            let (said, heard) = mpsc::channel();
            let core = cores.pick(None);
            for _ in 0..6 {
                let (said, here) = (said.clone(), core.clone());
                core.run(async move {
                    for n in 0..6 {
                        // A step in which the clock ticks, and which takes all the time that heavy tasks have in a turn.
                        here.common.ticks.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(HEAVY + Duration::from_millis(1));
                        // The first step has made it heavy.
                        if n > 0 {
                            said.send("heavy").unwrap();
                        }
                        next_turn().await;
                    }
                });
            }
            core.run(async move {
                // Behind the first steps of the others.
                next_turn().await;
                for _ in 0..60 {
                    said.send("light").unwrap();
                    next_turn().await;
                }
            });
            let order: Vec<_> = heard.iter().collect();
            assert_eq!(order.iter().filter(|o| **o == "heavy").count(), 30);
            assert!(
                order[..31].windows(2).all(|w| w != ["heavy", "heavy"]),
                "{order:?}"
            );
        });
    }

    #[test]
    fn a_step_that_takes_long_loses_the_core() {
        in_runtime(|cores| {
            let (release, wait) = mpsc::channel::<()>();
            let (said, heard) = mpsc::channel();
            let first = said.clone();
            cores.pick(None).run(async move {
                wait.recv().unwrap();
                first.send("long").unwrap();
                // Goes on wherever the core is now.
                turns::afterwards().await;
                first.send("after it").unwrap();
            });
            cores
                .pick(None)
                .run(async move { said.send("short").unwrap() });
            while heard.try_recv() != Ok("short") {
                cores.watch();
                std::thread::yield_now();
            }
            release.send(()).unwrap();
            assert_eq!(heard.iter().collect::<Vec<_>>(), ["long", "after it"]);
        });
    }
}
