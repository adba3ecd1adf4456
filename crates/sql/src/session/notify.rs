//! LISTEN, NOTIFY, UNLISTEN.
//!
//! ```text
//! NOTIFY, pg_notify()   kept with the session; COMMIT puts them in the commit's record      (at the primary)
//!                       the log carries them; each node keeps them until their position is shown  (txn::Notifications)
//! deliver               what is shown, in the order of the log, into the inbox of each session that listens
//! inbox                 told to the client when the session is between transactions
//! LISTEN, UNLISTEN      take effect when their transaction commits; LISTEN hears what is shown from then on, its own NOTIFY too
//! early                 all that comes between the start of such a commit and its end, kept until the channels are known
//! ```
//! The same channel and payload twice in one transaction is said once, as in PostgreSQL. A session listens where it is: a LISTEN whose
//! transaction runs at the primary comes back to the replica with its commit.
//!
//! Limits: a payload has fewer than 8000 bytes; an inbox that holds more than [`MOST`] bytes takes no further commit's: a client that does
//! not take them is disconnected then (53400), so that it holds up no other session and no memory.
//!
//! Left out on purpose: the replica's number of a session that notifies: listeners see the number that it has at the primary.

use super::exit::Exit;
use super::state::State;
use super::{Handle, Session, Shared};
use crate::engine::Engine;
use base::{Error, Notification, Position, Result, SqlState, Work};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::Stop;

/// Bytes of notifications that wait for a client at most.
pub const MOST: usize = 16 << 20;
/// What one takes beside its texts.
const ENTRY: usize = 64;
/// A payload is shorter than this.
const LONGEST: usize = 8000;

/// What a session hears of.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Each channel, and up to where it was shown when the session began to listen.
    channels: HashMap<Box<str>, Position>,
    waiting: VecDeque<Arc<Notification>>,
    bytes: usize,
    /// More came than fits.
    full: bool,
    early: Option<Early>,
}

/// All that comes while a transaction commits that listens: its channels count from its commit on, which may be shown before the session hears of it.
#[derive(Debug)]
struct Early {
    from: Position,
    came: VecDeque<(Position, Arc<Notification>)>,
    bytes: usize,
    /// The highest position of which something was let go, because there was no room.
    lost: Option<Position>,
}

/// What a transaction does to the channels of its session when it commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listening {
    To(Box<str>),
    Not(Box<str>),
    Nothing,
    /// What follows in the list hears of what is said above this position.
    Above(Position),
}

/// What the transaction says and hears of when it commits.
#[derive(Default)]
pub(super) struct Pending {
    says: Vec<Notification>,
    listens: Vec<Listening>,
    /// Where `says` stood when the statement began.
    statement: usize,
}

impl Pending {
    pub fn mark(&self) -> (usize, usize) {
        (self.says.len(), self.listens.len())
    }

    pub fn rollback_to(&mut self, (says, listens): (usize, usize)) {
        self.says.truncate(says);
        self.listens.truncate(listens);
    }

    pub fn begin_statement(&mut self) {
        self.statement = self.says.len();
    }

    pub fn undo_statement(&mut self) {
        self.says.truncate(self.statement);
    }
}

impl Inbox {
    /// What a commit says, if there is room, which it may go beyond; whether the session is to look.
    fn put_all(&mut self, at: Position, all: &[Arc<Notification>]) -> bool {
        let had = self.bytes;
        let room = had <= MOST;
        let mut some = false;
        for n in all {
            self.put_early(at, n);
            some |= self.put(at, n, room);
        }
        some
    }

    fn put_early(&mut self, at: Position, n: &Arc<Notification>) {
        let Some(e) = &mut self.early else { return };
        e.bytes += n.bytes() + ENTRY;
        e.came.push_back((at, n.clone()));
        while e.bytes > MOST
            && let Some((at, n)) = e.came.pop_front()
        {
            e.bytes -= n.bytes() + ENTRY;
            e.lost = Some(at);
        }
    }

    /// The channels as they are now, `shown` being the last position whose notifications were delivered; whether something waits.
    fn listen(&mut self, what: &[Listening], shown: Position) -> bool {
        let early = self.early.take();
        let mut from = early.as_ref().map_or(shown, |e| e.from);
        let had: HashSet<Box<str>> = self.channels.keys().cloned().collect();
        for w in what {
            match w {
                Listening::To(c) => _ = self.channels.entry(c.clone()).or_insert(from),
                Listening::Not(c) => _ = self.channels.remove(c),
                Listening::Nothing => self.channels.clear(),
                Listening::Above(p) => from = *p,
            }
        }
        let Some(early) = early else { return false };
        // Of the other channels it heard at once.
        let new = self.channels.iter().filter(|(c, _)| !had.contains(*c));
        let new: HashMap<&str, Position> = new.map(|(c, from)| (&**c, *from)).collect();
        let lost = early
            .lost
            .is_some_and(|l| new.values().any(|from| l > *from));
        let is_heard = |at: Position, c: &str| new.get(c).is_some_and(|from| at > *from);
        let came = early.came.into_iter();
        let heard = came.filter(|(at, n)| is_heard(*at, &n.channel));
        let heard: Vec<_> = heard.map(|(_, n)| n).collect();
        self.full |= lost;
        self.bytes += heard.iter().map(|n| n.bytes() + ENTRY).sum::<usize>();
        self.waiting.extend(heard);
        self.full || !self.waiting.is_empty()
    }

    fn put(&mut self, at: Position, n: &Arc<Notification>, room: bool) -> bool {
        if self
            .channels
            .get(&*n.channel)
            .is_none_or(|from| at <= *from)
        {
            return false;
        }
        if !room {
            self.full = true;
            return true;
        }
        self.bytes += n.bytes() + ENTRY;
        self.waiting.push_back(n.clone());
        true
    }
}

impl Handle {
    /// Whether something waits for the client.
    pub fn has_notifications(&self) -> bool {
        self.noticed.load(Ordering::SeqCst)
    }

    /// What waits for the client; 53400 when it came faster than the client took it.
    pub fn take_notifications(&self) -> Result<VecDeque<Arc<Notification>>> {
        let mut inbox = self.inbox.lock();
        self.noticed.store(false, Ordering::SeqCst);
        inbox.bytes = 0;
        let all = std::mem::take(&mut inbox.waiting);
        match inbox.full {
            false => Ok(all),
            true => Err(Error::new(
                SqlState::CONFIGURATION_LIMIT_EXCEEDED,
                "terminating connection because its client does not take notifications",
            )
            .detail(format!(
                "{MOST} bytes of notifications may wait for a client."
            ))),
        }
    }
}

impl<E: Engine> Shared<E> {
    /// Gives notifications that are shown by now to the sessions that listen.
    pub fn deliver(&self) {
        let queue = self.engine.notifications();
        if queue.is_empty() {
            return;
        }
        let _one = self.delivery.lock();
        let due = queue.take(self.engine.published_position());
        if due.is_empty() {
            return;
        }
        // One for all that listen.
        let shared = |all: Vec<Notification>| all.into_iter().map(Arc::new).collect();
        let due = due.into_iter().map(|(at, all)| (at, shared(all)));
        let due: Vec<(Position, Vec<Arc<Notification>>)> = due.collect();
        for h in self.sessions.list() {
            if !h.listens.load(Ordering::SeqCst) {
                continue;
            }
            let mut inbox = h.inbox.lock();
            let mut some = false;
            for (at, all) in &due {
                some |= inbox.put_all(*at, all);
            }
            drop(inbox);
            if some {
                h.noticed.store(true, Ordering::SeqCst);
                h.wake();
            }
        }
    }
}

impl<E: Engine> State<E> {
    /// NOTIFY, when the transaction commits. 22023.
    pub(super) fn say(&self, channel: &str, payload: &str) -> Result<()> {
        let bad = |what| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
        if channel.is_empty() {
            return bad("channel name cannot be empty");
        }
        if channel.len() > crate::catalog::MAX_NAME {
            return bad("channel name too long");
        }
        if payload.len() >= LONGEST {
            return bad("payload string too long");
        }
        if self.forwards.get() {
            return Err(self.at_primary("NOTIFY"));
        }
        if !self.shared.engine.runs(Work::Notify) {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot execute NOTIFY during recovery",
            ));
        }
        let says = &mut self.pending.borrow_mut().says;
        let n = Notification {
            channel: channel.into(),
            payload: payload.into(),
            pid: self.handle.pid,
        };
        if says.last() != Some(&n) {
            says.push(n);
        }
        Ok(())
    }

    /// The channels that this session listens to.
    pub(super) fn listening(&self) -> Vec<String> {
        let inbox = self.handle.inbox.lock();
        let mut all: Vec<String> = inbox.channels.keys().map(|c| c.to_string()).collect();
        all.sort_unstable();
        all
    }

    fn listen(&self, what: &[Listening]) {
        let _one = self.shared.delivery.lock();
        let shown = self.shared.engine.published_position();
        let mut inbox = self.handle.inbox.lock();
        if inbox.listen(what, shown) {
            self.handle.noticed.store(true, Ordering::SeqCst);
        }
        let some = !inbox.channels.is_empty();
        self.handle.listens.store(some, Ordering::SeqCst);
    }

    /// Before the commit of a transaction that listens: keeps what comes until it is known to which channels.
    pub(super) fn hear_early(&self) {
        let _one = self.shared.delivery.lock();
        let from = self.shared.engine.published_position();
        let mut inbox = self.handle.inbox.lock();
        inbox.early.get_or_insert_with(|| Early {
            from,
            came: VecDeque::new(),
            bytes: 0,
            lost: None,
        });
        self.handle.listens.store(true, Ordering::SeqCst);
    }
}

impl<E: Engine> Session<E> {
    /// LISTEN and UNLISTEN: with the transaction, if there is one.
    pub(super) fn listen(&mut self, what: Listening) {
        self.state.pending.get_mut().listens.push(what);
        if self.autocommit() {
            self.listen_now(None);
        }
    }

    /// NOTIFY.
    pub(super) async fn notify(&mut self, channel: &str, payload: &str) -> Result<(), Exit> {
        let auto = self.autocommit();
        self.ensure_txn(false);
        let txn = self.block.txn.as_mut().expect("just begun");
        if !txn.has_snapshot() {
            txn.begin_statement()?;
            txn.end_statement().map_err(Stop::only_error)?;
        }
        self.look_at_schema();
        let said = self.state.say(channel, payload);
        said.map_err(|e| self.follow_function(e.into()))?;
        if auto {
            self.commit().await?;
        }
        Ok(())
    }

    /// Before the commit: what it says goes with it.
    pub(super) fn say_with(&mut self, txn: &mut txn::Txn) -> bool {
        let says = std::mem::take(&mut self.state.pending.get_mut().says);
        if says.is_empty() {
            return false;
        }
        let mut said = HashSet::with_capacity(says.len());
        let once = |n: &Notification| said.insert((n.channel.clone(), n.payload.clone()));
        txn.notify(says.into_iter().filter(once).collect());
        true
    }

    /// The transaction has committed: what it listens to, from above this position on.
    pub(super) fn listen_now(&mut self, above: Option<Position>) {
        let mut listens = std::mem::take(&mut self.state.pending.get_mut().listens);
        if listens.is_empty() {
            return;
        }
        if let Some(p) = above {
            listens.insert(0, Listening::Above(p));
        }
        match self.heard_elsewhere() {
            Some(there) => there.extend(listens),
            None => self.state.listen(&listens),
        }
    }

    /// Before the commit of the transaction.
    pub(super) fn before_listening(&mut self) {
        let listens = !self.state.pending.get_mut().listens.is_empty();
        if listens && self.heard_elsewhere().is_none() {
            self.state.hear_early();
        }
    }

    /// What a transaction at the primary has listened to.
    pub(super) fn listens_here(&mut self, what: &[Listening]) {
        self.state.listen(what);
    }

    /// The transaction that was to listen has not committed.
    pub(super) fn listens_to_nothing_new(&mut self) {
        if self.handle.listens.load(Ordering::SeqCst) {
            self.state.listen(&[]);
        }
    }

    /// The transaction was rolled back.
    pub(super) fn unsay(&mut self) {
        *self.state.pending.get_mut() = Pending::default();
    }

    /// All channels are forgotten.
    pub(super) fn unlisten(&mut self) {
        self.state.listen(&[Listening::Nothing]);
    }

    /// What is to be told to the client now: nothing inside of a transaction.
    pub fn notifications(&mut self) -> Result<VecDeque<Arc<Notification>>> {
        if !self.handle.listens.load(Ordering::Relaxed) {
            return Ok(VecDeque::new());
        }
        self.shared.deliver();
        match self.handle.has_notifications() && self.block.status() == super::TxnStatus::Idle {
            true => self.handle.take_notifications(),
            false => Ok(VecDeque::new()),
        }
    }
}
