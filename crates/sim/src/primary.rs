//! A primary: the node, its end of each connection, and the clients that wait for their commits.
//!
//! The node decides (`node::sending`, `node::Shipping`, the pipeline); here its steps are made one at a time, and what it says is done.

use base::{CommitWait, Position, Result, SqlState};
use node::holding::Kept;
use node::sending::{Do, Event, Job, Note, Sending};
use node::{Node, Role};
use replica::ship::Message;
use replica::ship::evidence::NOT_SHOWN;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use txn::{CommitOrder, Durability, TableHandle};

use crate::forward::Open;
use crate::machine::table;
use crate::model::{Promise, Terms};
use crate::schema::{STOCK, TABLE};
use crate::values::Change;
use crate::world::World;

/// A commit: its position, and the two parts of its record.
type Made = (Position, Vec<u8>, Vec<u8>);

/// The node's order, and what went into it.
struct Recorder<'n> {
    order: &'n dyn CommitOrder,
    made: RefCell<Vec<Made>>,
}

impl CommitOrder for Recorder<'_> {
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> Result<()>) -> Result<()> {
        self.order.wait_for_room(check_cancelled)
    }

    fn begin(&self) -> Result<(Position, u64)> {
        self.order.begin()
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        let head = base::record::CommitHead::read(&heads).expect("a commit's record is readable");
        let copy = (head.position, heads.clone(), data.clone());
        self.made.borrow_mut().push(copy);
        self.order.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.order.abort(ticket);
    }
}

/// A commit whose client waits.
pub struct Pending {
    pub at: Position,
    pub held: CommitWait,
    pub promise: Promise,
}

/// A replica that is connected.
struct Link {
    sending: Sending,
    joined: bool,
}

pub struct Primary {
    pub node: Arc<Node>,
    pub table: Arc<TableHandle>,
    pub stock: Arc<TableHandle>,
    pub term: u64,
    pub terms: Terms,
    links: BTreeMap<usize, Link>,
    /// What may wait for the disk, in the order in which it was asked for.
    jobs: VecDeque<(usize, Job)>,
    pub pending: Vec<Pending>,
    /// Verdicts that wait: the number, the time that it was sent, and what for.
    pub certified: Vec<(u64, u32, CommitWait)>,
    /// Transactions that clients have open.
    pub open: Vec<Open>,
    /// A step of the worker of split values that has begun and rests.
    pub worker: Option<txn::Txn>,
    /// What is kept for transactions at replicas, by connection.
    pub kept: BTreeMap<u64, Kept>,
}

impl Primary {
    pub fn new(node: Arc<Node>) -> Primary {
        Primary {
            table: table(&node, TABLE),
            stock: table(&node, STOCK),
            term: node.term(),
            terms: node.terms(),
            links: BTreeMap::new(),
            jobs: VecDeque::new(),
            pending: Vec::new(),
            certified: Vec::new(),
            open: Vec::new(),
            worker: None,
            kept: BTreeMap::new(),
            node,
        }
    }

    /// Whether it takes no commits.
    pub fn is_sealing(&self) -> bool {
        self.node.role() != Role::Primary
    }

    /// Everything up to it is durable.
    pub fn flushed(&self) -> Position {
        self.node.marks().flushed.get()
    }

    /// Where read-only work stands; none while it may not be shown.
    pub fn shown(&self) -> Option<Position> {
        let published = self.node.marks().published.get();
        self.node.is_open().then_some(published)
    }

    /// Whether this many replicas follow live.
    pub fn joined(&self) -> usize {
        self.links.values().filter(|l| l.joined).count()
    }
}

impl World {
    /// A transaction commits, with what it did to the stocks. Its position; zero: it has written nothing.
    pub fn commit(
        &mut self,
        p: &mut Primary,
        txn: txn::Txn,
        promise: Promise,
        stock: Vec<Change>,
    ) -> Result<Position> {
        let node = p.node.clone();
        let commit = |order: &dyn CommitOrder| node.commit_in(Box::new(txn), order);
        let (held, made) = self.recorded(p, stock, commit)?;
        if let Some(at) = made {
            p.pending.push(Pending { at, held, promise });
        }
        Ok(made.unwrap_or(Position::ZERO))
    }

    /// Has the node commit, with this order, and remembers what it made. Where that is.
    pub fn recorded<T>(
        &mut self,
        p: &Primary,
        stock: Vec<Change>,
        commit: impl FnOnce(&dyn CommitOrder) -> Result<T>,
    ) -> Result<(T, Option<Position>)> {
        let mut stock = Some(stock);
        let recorder = Recorder {
            order: p.node.order(),
            made: RefCell::default(),
        };
        let done = commit(&recorder)?;
        let mut at = None;
        for (position, heads, data) in recorder.made.into_inner() {
            let stock = stock.take().expect("one transaction, one commit");
            self.model
                .committed(p.term, position, (&heads, &data), stock);
            self.report.commits += 1;
            at = Some(position);
        }
        Ok((done, at))
    }

    /// The flusher writes: what was installed goes to the log, not yet durable.
    pub fn append(&mut self, i: usize, p: &mut Primary) {
        if let Some(last) = p.node.append_step() {
            self.say(|| format!("node {i} appends up to {last}"));
        }
    }

    /// The flusher syncs, and what is durable goes to the senders.
    pub fn sync(&mut self, i: usize, p: &mut Primary) {
        if let Some(upto) = p.node.sync_step() {
            self.say(|| format!("node {i} syncs up to {upto}"));
            self.settled(i, p);
        }
    }

    /// After anything that may have moved watermarks.
    pub fn settled(&mut self, i: usize, p: &mut Primary) {
        self.tell_all(i, p, || Event::Moved);
        let node = p.node.clone();
        let (done, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut p.pending)
            .into_iter()
            .partition(|a| node.is_published(a.held));
        p.pending = waiting;
        for a in done {
            self.acknowledge(i, p, &a);
        }
        self.certified(i, p);
    }

    fn tell_all(&mut self, i: usize, p: &mut Primary, event: impl Fn() -> Event) {
        let links: Vec<usize> = p.links.keys().copied().collect();
        for c in links {
            self.tell(i, p, c, event());
        }
    }

    /// An event for the primary's end of a connection, and everything that follows from it.
    fn tell(&mut self, i: usize, p: &mut Primary, c: usize, event: Event) {
        let Some(link) = p.links.get_mut(&c) else {
            return;
        };
        let mut out = Vec::new();
        link.sending.handle(event, 0, &mut out);
        self.obey(i, p, c, out);
    }

    fn obey(&mut self, i: usize, p: &mut Primary, c: usize, all: Vec<Do>) {
        let mut ends = false;
        for d in all {
            match d {
                Do::Send(m) => self.send(c, false, m.to_bytes()),
                Do::Batch { step, group } => {
                    let mut bytes = Vec::new();
                    step.encode_batch(group.as_bytes(), &mut bytes);
                    self.send(c, false, bytes);
                }
                Do::Run(job) => p.jobs.push_back((c, job)),
                Do::Note(Note::CaughtUp) => {
                    p.links.get_mut(&c).expect("it has just spoken").joined = true;
                    self.say(|| format!("node {i}: connection {c} has caught up"));
                }
                Do::Note(note) => {
                    if matches!(note, Note::HandedOver(_)) {
                        p.open.clear();
                    }
                    self.say(|| format!("node {i}, connection {c}: {note:?}"));
                }
                Do::Depose(term) => {
                    self.say(|| format!("node {i} hears of term {term} and takes no more commits"));
                    p.node.depose(term);
                    p.open.clear();
                }
                Do::Hint(term) => {
                    self.say(|| format!("node {i}: a stranger speaks of term {term}"));
                }
                Do::Unproven { ours, theirs, why } => self.doubt(i, c, ours, theirs, &why),
                Do::Lost { ours, theirs } => self.lost_log(i, p, c, ours, theirs),
                Do::End(why) => {
                    self.say(|| format!("node {i} ends connection {c}: {why}"));
                    ends = true;
                }
                Do::Fail(e) => {
                    self.say(|| format!("node {i} ends connection {c}: {e}"));
                    assert_eq!(e.code(), SqlState::CONNECTION_FAILURE, "node {i}: {e}");
                    ends = true;
                }
            }
        }
        if ends {
            self.drop_link(i, p, c);
        }
    }

    /// A replica holds what this primary has lost: it serves nobody any more.
    fn lost_log(&mut self, i: usize, p: &mut Primary, c: usize, ours: Position, theirs: Position) {
        let replica = self.net.connections[c].replica;
        self.say(|| {
            format!(
                "node {i} has lost log: node {replica} has {theirs}, and here {ours} is the end"
            )
        });
        assert_eq!(
            self.config.liar,
            Some(i),
            "node {i} stops for node {replica}, and its disk never lied"
        );
        p.node.lose();
        p.open.clear();
        self.report.stopped += 1;
    }

    /// A replica says that it is ahead, and has not shown it. That it is so, the model knows.
    fn doubt(&mut self, i: usize, c: usize, ours: Position, theirs: Position, why: &str) {
        let replica = self.net.connections[c].replica;
        self.say(|| format!("node {i} ends at {ours} and does not believe node {replica}: {why}"));
        let held = self.machines[replica].holds();
        let honest = held.is_some_and(|(_, last)| last >= theirs);
        // Words are lost on the way, and said again on the next connection.
        let unheard = why == NOT_SHOWN;
        assert!(
            !honest || unheard,
            "node {i} does not believe node {replica}, which holds {theirs}: {why}"
        );
        self.report.doubted += 1;
    }

    /// The connection is no more for the primary; the other end hears of it.
    pub fn drop_link(&mut self, i: usize, p: &mut Primary, c: usize) {
        if p.links.remove(&c).is_some() {
            // Its answers are for this end. A Hello that comes twice begins another one.
            p.jobs.retain(|(of, _)| *of != c);
            self.hang_up(c, false);
            self.say(|| format!("node {i} has lost connection {c}"));
        }
    }

    /// A message from a replica.
    pub fn primary_hears(&mut self, i: usize, p: &mut Primary, c: usize, message: Message) {
        let Message::Hello { node, last, .. } = &message else {
            self.tell(i, p, c, Event::Message(message));
            return self.settled(i, p);
        };
        if p.links.contains_key(&c) {
            return;
        }
        let (node, last) = (node.clone(), *last);
        let peer = self.prove(i, c, p);
        let mut sending = Sending::new(p.node.clone(), None, peer, &node, "", last);
        sending.knows_acks();
        if self.config.leases {
            sending.knows_leases();
        }
        let facts = p.node.facts(None);
        let facts = facts.unwrap_or_else(|e| panic!("the log is not readable: {e}"));
        let mut out = Vec::new();
        sending.greet(message, facts, &mut out);
        let joined = false;
        p.links.insert(c, Link { sending, joined });
        self.obey(i, p, c, out);
        self.settled(i, p);
    }

    /// Some time has passed.
    pub fn primary_time(&mut self, i: usize, p: &mut Primary) {
        p.node.leases_lapse();
        self.tell_all(i, p, || Event::Time);
        self.settled(i, p);
    }

    /// A thread does what may wait for the disk.
    pub fn run_job(&mut self, i: usize, p: &mut Primary) {
        if let Some((c, job)) = p.jobs.pop_front() {
            self.tell(i, p, c, Event::Done(job()));
        }
    }

    /// Writes a checkpoint and lets the log before it go, but for what connected replicas need, and sometimes even that.
    pub fn checkpoint(&mut self, i: usize, p: &mut Primary) {
        // A checkpoint writes the anchor.
        if p.shown().is_none() || !self.anchoring {
            return;
        }
        let keep_all = self.dice.percent(70);
        let written = p.node.checkpoint_step(keep_all);
        written.unwrap_or_else(|e| panic!("the checkpoint failed: {e}"));
        self.say(|| format!("node {i} writes a checkpoint"));
        self.report.checkpoints += 1;
    }
}

/// What a client asks for when it is promised this.
pub fn durability(promise: Promise, apply: bool) -> Durability {
    match promise {
        Promise::Off => Durability::Off,
        Promise::Local => Durability::Local,
        Promise::Remote => Durability::RemoteWrite,
        Promise::Policy if apply => Durability::RemoteApply,
        Promise::Policy => Durability::On,
    }
}
