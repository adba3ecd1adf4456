//! One running member: the consensus, the deciders, and the copy of the data between them.
//!
//! ```text
//! catalogue changes --> lead, follow            every tick --> lease, reports, fail-over
//! other members     --> hear: consensus, lease, promise, proposal
//! ```
//! [`Data`] is what the member's copy can do; the caller brings it, and asks [`RunningMember::may_acknowledge`] before each reply.
//!
//! Left out on purpose: connections ([`Carry`] has them), and the replication of the data.

use env::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

use crate::catalogue::{Catalogue, Command, NodeId, Phase};
use crate::consensus::{Carried, Carry, Consensus, Timing};
use crate::failover::{Action, Failover, Obstacle};
use crate::leases::{Holder, Request, Terms};
use crate::standing::End;
use crate::waiting::{Seen, Waiting};

/// How often a member looks at what is to be done.
const TICK: Duration = Duration::from_millis(50);

/// The member's copy of the data. Calls may block for a sync.
pub trait Data: Send + Sync + 'static {
    /// Takes no records of lower terms any more, acknowledges none as their leader, makes this promise and the log durable, and says where the log ends.
    /// `None`: a later term was promised.
    fn promise(&self, term: u64) -> io::Result<Option<End>>;

    /// Begins to lead this term, unless a later one was promised. Called again after an error.
    fn lead(&self, term: u64) -> io::Result<()>;

    /// Follows the leader of this term.
    fn follow(&self, leader: NodeId, term: u64) -> io::Result<()>;

    /// What this primary sees of its replicas, and the last position of its log.
    fn seen(&self) -> (Seen, u64);
}

/// Between members. The first byte of a message says which it is.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// To the consensus leader: answered with whether it is granted.
    Lease { request: Request, end: u64 },
    /// To the consensus leader: answered with whether it was appended.
    Propose(Command),
    /// To the consensus leader: answered with whether a majority has confirmed it now.
    Confirm,
    /// To a copy: answered with its [`End`], or nothing.
    Promise { term: u64 },
}

const CONSENSUS: u8 = b'C';
const WORD: u8 = b'W';

/// Marks messages of the consensus.
struct Marked(Arc<dyn Carry>);

impl Carry for Marked {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        let mut marked = vec![CONSENSUS];
        marked.extend(message);
        self.0.carry(to, marked)
    }
}

/// The primary's side of one term.
struct Leading {
    term: u64,
    holder: Holder,
    waiting: Waiting,
    /// When the lease was last asked for.
    asked: Option<u64>,
}

struct Inner {
    me: NodeId,
    /// Of this start.
    life: u64,
    terms: Terms,
    clock: Arc<dyn Clock>,
    carry: Arc<dyn Carry>,
    consensus: Consensus,
    data: Arc<dyn Data>,
    leading: Mutex<Option<Leading>>,
    /// The term of `leading`, and until when its lease is held.
    lease: (AtomicU64, AtomicU64),
    /// With the consensus term of the election.
    control: Mutex<Option<(u64, Failover)>>,
    /// The phase that the copy was told of last.
    told: Mutex<Option<Phase>>,
    fitting: AtomicBool,
    /// See [`RunningMember::set_deaf`].
    deaf: AtomicBool,
}

/// See the head of the file. Dropping it ends its task, not the consensus: [`RunningMember::stop`] does both.
pub struct RunningMember {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Drop for RunningMember {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RunningMember {
    /// Opens the consensus in this directory and begins to act.
    pub async fn open(
        env: &env::Env,
        dir: &Path,
        me: NodeId,
        carry: Arc<dyn Carry>,
        data: Arc<dyn Data>,
        timing: Timing,
        terms: Terms,
    ) -> io::Result<RunningMember> {
        let marked = Arc::new(Marked(carry.clone()));
        let consensus = Consensus::open(env.disk.clone(), dir, me, marked, timing).await?;
        let inner = Arc::new(Inner {
            me,
            life: env.random.next_u64(),
            terms,
            clock: env.clock.clone(),
            carry,
            consensus,
            data,
            leading: Mutex::default(),
            lease: (AtomicU64::new(0), AtomicU64::new(0)),
            control: Mutex::default(),
            told: Mutex::default(),
            fitting: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        });
        let acting = inner.clone();
        let task = tokio::spawn(async move {
            loop {
                acting.act();
                tokio::time::sleep(TICK).await;
            }
        });
        Ok(RunningMember { inner, task })
    }

    /// The consensus of this member.
    pub fn consensus(&self) -> &Consensus {
        &self.inner.consensus
    }

    /// The way in for messages of other members.
    pub fn ear(&self) -> Ear {
        Ear(self.inner.clone())
    }

    /// Whether the leader of this term may acknowledge and serve strong reads now: it holds its lease. Takes no lock.
    pub fn may_acknowledge(&self, term: u64) -> bool {
        let (of, until) = &self.inner.lease;
        of.load(Ordering::SeqCst) == term
            && self.inner.clock.boot_nanos() < until.load(Ordering::SeqCst)
    }

    /// How long this member's lease is held yet; none: it does not lead.
    pub fn lease_left(&self) -> Option<Duration> {
        let now = self.inner.clock.boot_nanos();
        let leading = self.inner.leading.lock();
        let left = leading.as_ref().map(|l| l.holder.left(now));
        left.map(Duration::from_nanos)
    }

    /// Has the consensus leader append a command. False: it is not known whether it was.
    pub async fn propose(&self, command: Command) -> bool {
        let Some(to) = self.inner.consensus.leader() else {
            return false;
        };
        let appended: Option<bool> = self.inner.ask(to, Word::Propose(command)).await;
        appended.unwrap_or(false)
    }

    /// Whether the members have a majority that this one reaches.
    pub async fn has_majority(&self) -> bool {
        let Some(to) = self.inner.consensus.leader() else {
            return false;
        };
        self.inner.ask(to, Word::Confirm).await.unwrap_or(false)
    }

    /// How many replicas the leader waits for.
    pub fn wanted(&self) -> usize {
        let now = self.inner.clock.boot_nanos();
        let catalogue = self.inner.consensus.catalogue();
        let catalogue = catalogue.borrow();
        let leading = self.inner.leading.lock();
        let by_leader = leading.as_ref().map(|l| l.waiting.wanted(&catalogue, now));
        by_leader.unwrap_or(catalogue.wanted())
    }

    /// At the consensus leader: what stands in the way of a fail-over.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let catalogue = self.inner.consensus.catalogue();
        let control = self.inner.control.lock();
        control.as_ref()?.1.obstacle(&catalogue.borrow())
    }

    /// Other members cannot reach this one for a while. It does not stand for election meanwhile, and takes no lease for over: requests for it do not
    /// come through. When it hears again it waits one lease out, as after an election.
    pub fn set_deaf(&self, deaf: bool) {
        self.inner.deaf.store(deaf, Ordering::SeqCst);
        self.inner.consensus.may_stand(!deaf);
        *self.inner.control.lock() = None;
    }

    /// Ends the member.
    pub async fn stop(&self) -> io::Result<()> {
        self.task.abort();
        self.inner.consensus.stop().await
    }
}

/// Answers messages of other members.
#[derive(Clone)]
pub struct Ear(Arc<Inner>);

impl Ear {
    /// The answer to one message.
    pub async fn hear(&self, message: &[u8]) -> io::Result<Vec<u8>> {
        match message.split_first() {
            Some((&CONSENSUS, rest)) => self.0.consensus.hear(rest).await,
            Some((&WORD, rest)) => {
                let word = serde_json::from_slice(rest).map_err(io::Error::other)?;
                self.0.answer(word).await
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Inner {
    fn catalogue(&self) -> Catalogue {
        self.consensus.catalogue().borrow().clone()
    }

    async fn answer(self: &Arc<Inner>, word: Word) -> io::Result<Vec<u8>> {
        let answer = match word {
            Word::Lease { request, end } => {
                serde_json::to_vec(&self.grant(request, end).await.is_some())
            }
            Word::Propose(command) => {
                let appended = self.consensus.propose(command).await;
                serde_json::to_vec(&appended.is_ok())
            }
            Word::Confirm => serde_json::to_vec(&self.consensus.confirm().await.is_ok()),
            Word::Promise { term } => {
                let data = self.data.clone();
                let promised = tokio::task::spawn_blocking(move || data.promise(term));
                let end = promised.await.map_err(io::Error::other)??;
                if end.is_some() {
                    self.step_down(term);
                }
                serde_json::to_vec(&end)
            }
        };
        answer.map_err(io::Error::other)
    }

    /// A leader of a lower term leads no more.
    fn step_down(&self, term: u64) {
        let mut leading = self.leading.lock();
        if leading.as_ref().is_some_and(|l| l.term < term) {
            self.lease.1.store(0, Ordering::SeqCst);
            *leading = None;
        }
    }

    /// Grants a lease, after a majority has confirmed that this is the consensus leader and all that was agreed on before is applied here.
    async fn grant(&self, request: Request, end: u64) -> Option<()> {
        self.elections();
        let now = self.clock.boot_nanos();
        let catalogue = self.catalogue();
        let received = |c: &mut (u64, Failover)| c.1.requested(&catalogue, request, end, now);
        if !self.control.lock().as_mut().is_some_and(received) {
            return None;
        }
        self.consensus.confirm().await.ok()?;
        Failover::still_leads(&self.catalogue(), request).then_some(())
    }

    /// Makes a decider for each election that this member has won.
    fn elections(&self) {
        let won = self.consensus.won();
        let now = self.clock.boot_nanos();
        let mut control = self.control.lock();
        if control.as_ref().map(|c| c.0) != won {
            *control = won.map(|term| (term, Failover::elected(self.terms, now)));
        }
    }

    /// All that is to be done now. What waits does so in tasks of its own.
    fn act(self: &Arc<Inner>) {
        self.elections();
        let catalogue = self.catalogue();
        self.tell(&catalogue);
        self.lead(&catalogue);
        self.supervise(&catalogue);
        if self.consensus.won().is_some() && !self.fitting.swap(true, Ordering::AcqRel) {
            let this = self.clone();
            tokio::spawn(async move {
                // An error is a leader that changes just now; the next tick tries again.
                let _ = this.consensus.fit().await;
                this.fitting.store(false, Ordering::Release);
            });
        }
    }

    /// Tells the copy which node leads.
    fn tell(self: &Arc<Inner>, catalogue: &Catalogue) {
        let Some(phase @ Phase::Leading { node, term }) = catalogue.phase() else {
            return;
        };
        let mut told = self.told.lock();
        if *told == Some(phase) {
            return;
        }
        *told = Some(phase);
        let this = self.clone();
        tokio::task::spawn_blocking(move || {
            let done = match node == this.me {
                true => this.data.lead(term),
                false => this.data.follow(node, term),
            };
            match done {
                Ok(()) if node == this.me => {
                    let holder = Holder::new(this.terms, this.me, term, this.life);
                    let mut leading = this.leading.lock();
                    if leading.as_ref().is_none_or(|l| l.term < term) {
                        // No lease of an older term counts for this one.
                        this.lease.1.store(0, Ordering::SeqCst);
                        this.lease.0.store(term, Ordering::SeqCst);
                        *leading = Some(Leading {
                            term,
                            holder,
                            waiting: Waiting::new(term),
                            asked: None,
                        });
                    }
                }
                Ok(()) => this.step_down(term),
                // It is told again.
                Err(_) => *this.told.lock() = None,
            }
        });
    }

    /// The primary's part: its lease, and what it reports.
    fn lead(self: &Arc<Inner>, catalogue: &Catalogue) {
        // Looked at also without a consensus leader: a copy that was promoted by hand waits for what its own node says.
        let (seen, end) = self.data.seen();
        let Some(to) = self.consensus.leader() else {
            return;
        };
        let now = self.clock.boot_nanos();
        let mut leading = self.leading.lock();
        let Some(l) = leading.as_mut() else { return };
        if let Some(command) = l.waiting.tick(catalogue, seen, now) {
            let this = self.clone();
            tokio::spawn(async move {
                // Proposed again at the next tick, if it is still due.
                let _: Option<bool> = this.ask(to, Word::Propose(command)).await;
            });
        }
        let every = u64::try_from(self.terms.every.as_nanos()).unwrap_or(u64::MAX);
        if l.asked.is_some_and(|at| now.saturating_sub(at) < every) {
            return;
        }
        l.asked = Some(now);
        let request = l.holder.request(now);
        drop(leading);
        let this = self.clone();
        tokio::spawn(async move {
            let granted: Option<bool> = this.ask(to, Word::Lease { request, end }).await;
            let now = this.clock.boot_nanos();
            if let (Some(true), Some(l)) = (granted, this.leading.lock().as_mut()) {
                l.holder.granted(request, now);
                let until = l.holder.until().unwrap_or(0);
                this.lease.1.store(until, Ordering::SeqCst);
            }
        });
    }

    /// The consensus leader's part.
    fn supervise(self: &Arc<Inner>, catalogue: &Catalogue) {
        if self.deaf.load(Ordering::SeqCst) {
            return;
        }
        let now = self.clock.boot_nanos();
        let actions = match self.control.lock().as_mut() {
            Some((_, failover)) => failover.tick(catalogue, now),
            None => return,
        };
        for action in actions {
            let this = self.clone();
            tokio::spawn(async move {
                match action {
                    Action::Propose(command) => {
                        let _ = this.consensus.propose(command).await;
                    }
                    Action::Ask { node, term } => {
                        let answer = this.ask(node, Word::Promise { term }).await;
                        if let (Some(Some(end)), Some((_, failover))) =
                            (answer, this.control.lock().as_mut())
                        {
                            failover.answered(term, node, end);
                        }
                    }
                }
            });
        }
    }

    /// Asks another member, or this one.
    async fn ask<T: serde::de::DeserializeOwned>(
        self: &Arc<Inner>,
        to: NodeId,
        word: Word,
    ) -> Option<T> {
        let answer = if to == self.me {
            Box::pin(self.answer(word)).await
        } else {
            let mut message = vec![WORD];
            message.extend(serde_json::to_vec(&word).ok()?);
            self.carry.carry(to, message).await
        };
        serde_json::from_slice(&answer.ok()?).ok()
    }
}
