//! The sessions of a server, as others see them: to cancel one, to end it, to list what they do, to keep their time limits.
//!
//! A [`Handle`] is shared between the session and everybody else. Time limits are kept by one clock for all
//! ([`Sessions::tick`]): a statement that has one writes its deadline in its handle, and a tick past it interrupts it.
//!
//! The clock is another thread. A limit hits what it was set for or nothing: that a wait is over time stands in the word of its deadline,
//! and who ends a statement waits for a tick that is just about to interrupt it.

use super::notify::Inbox;
use base::Oid;
use base::memory::{self, Account, Total};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use txn::Interrupt;

/// Why a session is interrupted; the numbers of [`Interrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Cancel = 1,
    StatementTimeout = 2,
    /// All have too much memory, and it has the most.
    Memory = 3,
    Terminate = 4,
}

/// What a session is doing.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    pub user: Oid,
    /// Another node's connection: it does the work of sessions that are counted there.
    pub between_nodes: bool,
    pub application_name: String,
    pub client_addr: Option<String>,
    pub client_port: Option<i32>,
    pub protection: Option<Arc<super::Protection>>,
    pub backend_start: i64,
    pub xact_start: Option<i64>,
    pub query_start: Option<i64>,
    pub state_change: Option<i64>,
    pub state: &'static str,
    pub query: Arc<str>,
    pub waits: Option<Waits>,
}

/// What a session waits for, as `pg_stat_activity` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    Lock,
    Advisory,
    /// What is read is not here yet.
    Freshness,
    /// A commit waits for its log to reach this disk.
    Log,
    /// ... and finds it full.
    FullDisk,
    /// A commit waits for replicas.
    Replicas,
    /// A commit of a site waits for its primary.
    Verdict,
    /// A site has asked its primary for numbers of a sequence.
    Numbers,
}

impl Waits {
    /// Type and name of the wait event.
    pub fn event(self) -> (&'static str, &'static str) {
        match self {
            Waits::Lock => ("Lock", "tuple"),
            Waits::Advisory => ("Lock", "advisory"),
            Waits::Freshness => ("IPC", "ReadFreshness"),
            Waits::Log => ("IO", "WALSync"),
            Waits::FullDisk => ("IO", "DiskFull"),
            Waits::Replicas => ("IPC", "SyncRep"),
            Waits::Verdict => ("IPC", "CommitVerdict"),
            Waits::Numbers => ("IPC", "SequenceNumbers"),
        }
    }
}

/// The other end of a session's connection.
pub trait ClientSide: Send + Sync {
    /// Whether it has closed the connection. What it sent before may not have been read yet.
    fn has_gone(&self) -> bool;
}

/// A deadline that has passed.
const PAST: u64 = u64::MAX;

/// One session, for others.
pub struct Handle {
    pub pid: i32,
    /// What a cancel request must know.
    pub secret: i32,
    pub interrupt: Arc<Interrupt>,
    waker: AtomicWaker,
    /// The server closes: the session ends when nothing of it is under way.
    leaving: AtomicBool,
    /// Of the statement, in monotonic milliseconds; 0: none. `PAST`: a tick is about to interrupt it.
    deadline: AtomicU64,
    /// Of the wait; 0: none. `PAST` until the wait ends.
    wait_deadline: AtomicU64,
    /// The position that a commit waits for; 0: none. [`Handle::ROOM`]: it has none yet, and waits until the log has room.
    commit: AtomicU64,
    pub activity: Mutex<Activity>,
    /// The running transaction, or the last one, and the owner of the session's advisory locks, as the table of locks knows them.
    pub txn: AtomicU64,
    pub bearer: AtomicU64,
    /// Whether the session listens; what it has heard, and whether that is something.
    pub(super) listens: AtomicBool,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) noticed: AtomicBool,
    /// What it takes of memory.
    pub account: Arc<Account>,
    /// It was ended because it had the most memory while nothing of it ran.
    starved: AtomicBool,
    /// The client, and whether what runs ends with it (`client_connection_check_interval`).
    peer: OnceLock<Arc<dyn ClientSide>>,
    needs_peer: AtomicBool,
}

impl Handle {
    /// No position is so high.
    pub const ROOM: u64 = u64::MAX;

    /// What its commit waits for; 0: it does not wait for one.
    #[inline]
    pub fn commit_waits(&self, position: u64) {
        self.commit.store(position, Ordering::Relaxed);
    }

    /// The position that its commit waits for.
    pub fn waiting_commit(&self) -> Option<u64> {
        Some(self.commit.load(Ordering::Relaxed)).filter(|p| *p != 0)
    }

    fn new(pid: i32, secret: i32, account: Arc<Account>) -> Handle {
        Handle {
            pid,
            secret,
            account,
            starved: AtomicBool::new(false),
            peer: OnceLock::new(),
            needs_peer: AtomicBool::new(false),
            interrupt: Arc::default(),
            waker: AtomicWaker::new(),
            leaving: AtomicBool::new(false),
            deadline: AtomicU64::new(0),
            wait_deadline: AtomicU64::new(0),
            commit: AtomicU64::new(0),
            activity: Mutex::default(),
            txn: AtomicU64::new(0),
            bearer: AtomicU64::new(0),
            listens: AtomicBool::new(false),
            inbox: Mutex::default(),
            noticed: AtomicBool::new(false),
        }
    }

    fn flag(&self) -> &AtomicU8 {
        &self.interrupt.0
    }

    /// Interrupts what runs. A termination is not taken back by a later, weaker reason.
    pub fn interrupt(&self, why: Reason) {
        self.flag().fetch_max(why as u8, Ordering::SeqCst);
        self.waker.wake();
    }

    /// The reason, if there is one.
    pub fn interrupted(&self) -> Option<Reason> {
        match self.flag().load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Reason::Cancel),
            2 => Some(Reason::StatementTimeout),
            3 => Some(Reason::Memory),
            _ => Some(Reason::Terminate),
        }
    }

    /// It has the most memory of all, and all have too much: its statement ends, or, where none runs, the session.
    fn give_back_memory(&self) {
        let runs = self.activity.lock().state == "active";
        if !runs {
            self.starved.store(true, Ordering::SeqCst);
        }
        self.interrupt(match runs {
            true => Reason::Memory,
            false => Reason::Terminate,
        });
    }

    /// The session's client is this one.
    pub fn set_peer(&self, peer: Arc<dyn ClientSide>) {
        // A session has one.
        _ = self.peer.set(peer);
    }

    /// Whether the session ends when its client goes while something runs.
    #[inline]
    pub fn need_peer(&self, needed: bool) {
        self.needs_peer.store(needed, Ordering::Relaxed);
    }

    /// Whether it was ended because of what it kept in memory.
    pub fn starved(&self) -> bool {
        self.starved.load(Ordering::SeqCst)
    }

    pub fn terminated(&self) -> bool {
        self.flag().load(Ordering::Relaxed) == Reason::Terminate as u8
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Asks the session to end once it is between transactions; whatever runs is not disturbed.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// Whether there is an interruption, a notification, or the session was asked to leave: what a session looks for while nothing runs.
    pub fn is_called(&self) -> bool {
        self.interrupted().is_some() || self.is_leaving() || self.has_notifications()
    }

    /// Begins a statement: forgets a cancel that came too late for the last one.
    #[inline]
    pub fn begin(&self, deadline: u64) {
        self.end();
        let f = self.flag();
        let old = f.load(Ordering::Relaxed);
        if old != 0 && old < Reason::Terminate as u8 {
            // A termination that comes between stays.
            _ = f.compare_exchange(old, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.set_limit(deadline);
    }

    /// When the statement is past its time; 0: never.
    #[inline]
    pub fn limit(&self, deadline: u64) {
        self.end();
        self.set_limit(deadline);
    }

    /// The same where none has been set since [`Handle::end`].
    fn set_limit(&self, deadline: u64) {
        if deadline != 0 {
            self.deadline
                .store(deadline.min(PAST - 1), Ordering::SeqCst);
        }
    }

    /// A cancel was passed on to where the statement runs.
    pub fn forget_cancel(&self) {
        self.forget(Reason::Cancel);
    }

    /// This was not meant for what runs now.
    pub fn forget(&self, why: Reason) {
        _ = self
            .flag()
            .compare_exchange(why as u8, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Ends the statement's time limit: it interrupts nothing from here on.
    #[inline]
    pub fn end(&self) {
        loop {
            match self.deadline.load(Ordering::Acquire) {
                0 => return,
                PAST => std::thread::yield_now(),
                at if self
                    .deadline
                    .compare_exchange(at, 0, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok() =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    /// Begins a wait, which ends at this time at the latest; 0: never.
    pub fn begin_wait(&self, deadline: u64, what: Waits) {
        let deadline = deadline.min(PAST - 1);
        self.wait_deadline.store(deadline, Ordering::SeqCst);
        self.activity.lock().waits = Some(what);
    }

    pub fn end_wait(&self) {
        self.wait_deadline.store(0, Ordering::SeqCst);
        self.activity.lock().waits = None;
    }

    pub fn wait_is_over_time(&self) -> bool {
        self.wait_deadline.load(Ordering::SeqCst) == PAST
    }

    /// Whether there is an interruption, or the wait has reached its limit.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted().is_some() || self.wait_is_over_time()
    }

    /// Waits for an interruption, or for the limit of the wait.
    pub async fn interruption(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            match self.is_interrupted() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// To be woken when the session is asked to end.
    pub fn wake_by(&self, cx: &std::task::Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// For a write that waits for its client: whether it ends, because the session does or its memory is wanted. If not, `cx` is woken then.
    pub fn ends_write(&self, cx: &std::task::Context<'_>) -> bool {
        self.wake_by(cx);
        self.interrupted() >= Some(Reason::Memory)
    }

    fn tick(&self, now: u64) {
        let due = |d: &AtomicU64| {
            let at = d.load(Ordering::SeqCst);
            at != 0
                && at <= now
                && d.compare_exchange(at, PAST, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
        };
        if due(&self.deadline) {
            let late = Reason::StatementTimeout as u8;
            self.flag().fetch_max(late, Ordering::SeqCst);
            self.deadline.store(0, Ordering::SeqCst);
            self.waker.wake();
        }
        if due(&self.wait_deadline) {
            self.waker.wake();
        }
        if self.needs_peer.load(Ordering::Relaxed) && self.peer.get().is_some_and(|p| p.has_gone())
        {
            self.interrupt(Reason::Terminate);
        }
        // It was asked to end, and does so when the state of its commit is known: it looks again.
        if self.commit.load(Ordering::Relaxed) != 0 && self.interrupted().is_some() {
            self.waker.wake();
        }
    }
}

/// All sessions of a server.
#[derive(Default)]
pub struct Sessions {
    /// The bound of what they take of memory.
    pub memory: Arc<Total>,
    all: Mutex<HashMap<i32, Arc<Handle>>>,
    next: AtomicI32,
}

impl Sessions {
    /// A handle for a new session, with the account that runs here, or one of its own.
    pub fn register(&self, secret: i32) -> Arc<Handle> {
        let account = memory::current().unwrap_or_else(|| self.memory.account());
        let mut all = self.all.lock();
        let pid = loop {
            let n = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if n != 0 && !all.contains_key(&n) {
                break n;
            }
        };
        let h = Arc::new(Handle::new(pid, secret, account));
        let own = Arc::downgrade(&h);
        h.account.on_victim(Box::new(move |_| {
            own.upgrade().inspect(|h| h.give_back_memory());
        }));
        all.insert(pid, h.clone());
        h
    }

    pub fn remove(&self, pid: i32) {
        self.all.lock().remove(&pid);
    }

    pub fn get(&self, pid: i32) -> Option<Arc<Handle>> {
        self.all.lock().get(&pid).cloned()
    }

    /// Every session, in order of number.
    pub fn list(&self) -> Vec<Arc<Handle>> {
        let mut v: Vec<_> = self.all.lock().values().cloned().collect();
        v.sort_by_key(|h| h.pid);
        v
    }

    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Interrupts the session of this number if the secret is right. Whether it was is nobody's business.
    pub fn cancel(&self, pid: i32, secret: i32) {
        if let Some(h) = self.get(pid)
            && h.secret == secret
        {
            h.interrupt(Reason::Cancel);
        }
    }

    /// Ends what is past its time. To be called every few milliseconds with a monotonic time in milliseconds.
    pub fn tick(&self, now: u64) {
        for h in self.all.lock().values() {
            h.tick(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_needs_the_secret_and_termination_stays() {
        let s = Sessions::default();
        let h = s.register(7);
        s.cancel(h.pid, 8);
        assert_eq!(h.interrupted(), None);
        s.cancel(h.pid, 7);
        assert_eq!(h.interrupted(), Some(Reason::Cancel));
        h.begin(0);
        assert_eq!(h.interrupted(), None);
        h.interrupt(Reason::Terminate);
        h.interrupt(Reason::Cancel);
        h.begin(0);
        assert!(h.terminated());
    }

    #[test]
    fn deadlines_fire_once_and_only_when_past() {
        let s = Sessions::default();
        let h = s.register(0);
        h.begin(100);
        s.tick(99);
        assert_eq!(h.interrupted(), None);
        s.tick(100);
        assert_eq!(h.interrupted(), Some(Reason::StatementTimeout));
        h.begin(0);
        s.tick(1000);
        assert_eq!(h.interrupted(), None);
        h.begin_wait(5, Waits::Lock);
        s.tick(6);
        assert!(h.wait_is_over_time());
        assert_eq!(h.interrupted(), None);
        // An idle session that once ran out of patience waits quietly again.
        h.end_wait();
        assert!(!h.wait_is_over_time());
    }

    /// The clock runs beside the session: a limit that fires while its wait or its statement ends hits no later one.
    #[test]
    fn a_limit_that_fires_late_hits_nothing_else() {
        let s = Sessions::default();
        let h = s.register(0);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    s.tick(10);
                }
            });
            let late = |is: &dyn Fn() -> bool| (0..20).any(|_| is());
            let mut wrong = [0; 2];
            for _ in 0..200_000 {
                h.begin_wait(5, Waits::Lock);
                h.end_wait();
                wrong[0] += u32::from(late(&|| h.wait_is_over_time()));
                h.begin(5);
                h.end();
                h.begin(0);
                wrong[1] += u32::from(late(&|| h.interrupted().is_some()));
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, [0; 2]);
        });
    }
}
