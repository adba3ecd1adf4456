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
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

use crate::catalogue::{Catalogue, Command, NodeId, Phase, Refused};
use crate::consensus::{Carried, Carry, Consensus};
use crate::elections::Timing;
use crate::failover::{Action, Failover, Obstacle};
use crate::leases::{Holder, Request, Terms};
use crate::standing::Answer;
use crate::tasks::{JoinHandle, spawn, spawn_blocking};
use crate::time::{Instant, sleep, timeout};
use crate::waiting::{Seen, Waiting};
use crate::word::{Said, Word};

/// How long an election may take: a silence, and some tries.
const ELECTION: Duration = Duration::from_secs(4);
/// How often a member looks at what is to be done.
const TICK: Duration = Duration::from_millis(50);
/// How soon a copy is asked again that has not answered yet. Each question may hold a thread there.
const AGAIN: Duration = Duration::from_millis(500);
/// A member that answered within this time counts as reached.
const REACH: Duration = Duration::from_secs(2);
/// A member that answered within this time may become a voter that all others wait for. The consensus leader asks each four times a second.
const ANSWERS: Duration = Duration::from_millis(1000);
/// How long another member may take to answer a proposal, which is told again then.
const ANSWERED: Duration = Duration::from_secs(2);
/// The same at the consensus leader itself. Each one that is told again stays in its log.
const FORGOTTEN: Duration = Duration::from_secs(30);
/// How often a named copy may fail to begin its term while it holds a lease.
const TRIES: u32 = 3;

/// What has become of a copy that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    Yes,
    /// It takes no commits any more, and leads nothing.
    No,
    /// Its server starts, or it leads a later term.
    Unknown,
}

/// The member's copy of the data. Calls may block for a sync.
pub trait Data: Send + Sync + 'static {
    /// Takes no records of lower terms any more, acknowledges none as their leader, makes this promise and the log durable, and says where the log ends.
    /// [`Answer::Later`]: nothing of that was done, as a later term is known.
    fn promise(&self, term: u64) -> io::Result<Answer>;

    /// Begins to lead this term. False: a later term is known, so this one comes to nothing. Called again after an error.
    fn lead(&self, term: u64) -> io::Result<bool>;

    /// Whether this copy, which has begun to lead this term, leads it now.
    fn leads(&self, term: u64) -> Leads;

    /// Follows the leader of this term.
    fn follow(&self, leader: NodeId, term: u64) -> io::Result<()>;

    /// What this primary sees of its replicas, and the last position of its log.
    fn seen(&self) -> (Seen, u64);

    /// The leader of this term holds its lease until this time, nanoseconds of `env::Clock::boot_nanos`. Quick.
    fn holds_until(&self, _term: u64, _until: u64) {}
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// When members answered last, in nanoseconds of this node's clock. The consensus leader asks each of them all the time.
#[derive(Default)]
struct Heard(Mutex<BTreeMap<NodeId, u64>>);

/// Marks messages of the consensus, and takes note of answers.
struct Marked {
    carry: Arc<dyn Carry>,
    clock: Arc<dyn Clock>,
    heard: Arc<Heard>,
}

impl Carry for Marked {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        let marked = Said::Consensus(&message).encode();
        Box::pin(async move {
            let answer = self.carry.carry(to, marked).await?;
            self.heard.0.lock().insert(to, self.clock.boot_nanos());
            Ok(answer)
        })
    }
}

/// How far a term has begun that this copy was named for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Since when a try is under way, in nanoseconds of this node's clock, and how many have failed.
    Not {
        since: Option<u64>,
        failed: u32,
    },
    Yes,
    /// A later term is known: it never will.
    Never,
}

/// The primary's side of one term.
struct Leading {
    term: u64,
    begun: Begun,
    holder: Holder,
    waiting: Waiting,
    /// When the lease was last asked for, and of which consensus leader.
    asked: Option<(u64, NodeId)>,
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
    /// The copy is told one thing at a time.
    telling: Mutex<()>,
    /// Questions to copies that are under way, and when they were asked last.
    asking: Mutex<BTreeMap<(NodeId, u64), u64>>,
    /// Proposals that are under way, and to which consensus leader.
    proposing: Mutex<Vec<(NodeId, Command)>>,
    heard: Arc<Heard>,
    /// The members that the consensus leader reaches, and when this was asked last.
    reached: Mutex<(BTreeSet<NodeId>, u64)>,
    /// Why the consensus has ended here.
    failed: watch::Sender<Option<String>>,
    fitting: AtomicBool,
    /// Something is known that may be acted on at once.
    moved: Notify,
    /// Tries of the copy to begin a term that have failed, since one succeeded.
    unable: AtomicU32,
    /// See [`RunningMember::set_deaf`].
    deaf: AtomicBool,
}

/// A proposal, until it has ended.
struct UnderWay<'a> {
    inner: &'a Inner,
    one: (NodeId, Command),
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.inner.proposing.lock().retain(|one| *one != self.one);
    }
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
        let heard = Arc::new(Heard::default());
        let marked = Arc::new(Marked {
            carry: carry.clone(),
            clock: env.clock.clone(),
            heard: heard.clone(),
        });
        let consensus = Consensus::open(env, dir, me, marked, timing).await?;
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
            telling: Mutex::default(),
            asking: Mutex::default(),
            proposing: Mutex::default(),
            heard,
            reached: Mutex::default(),
            failed: watch::channel(None).0,
            fitting: AtomicBool::new(false),
            moved: Notify::new(),
            unable: AtomicU32::new(0),
            deaf: AtomicBool::new(false),
        });
        let acting = inner.clone();
        let mut catalogue = inner.consensus.catalogue();
        let task = spawn(async move {
            loop {
                catalogue.mark_unchanged();
                acting.act();
                // What the members agree on is acted on at once, and so are answers.
                tokio::select! {
                    biased;
                    () = acting.moved.notified() => {}
                    changed = timeout(TICK, catalogue.changed()) => {
                        if let Ok(Err(_)) = changed {
                            // The consensus has ended here. The next look says why.
                            sleep(TICK).await;
                        }
                    }
                }
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

    /// Whether the leader of this term holds its lease until this time, at least: nanoseconds of `env::Clock::boot_nanos`. No other node is named before.
    pub fn leads_until(&self, term: u64, time: u64) -> bool {
        let (of, until) = &self.inner.lease;
        of.load(Ordering::SeqCst) == term && time <= until.load(Ordering::SeqCst)
    }

    /// How long this member's lease is held yet; none: it does not lead.
    pub fn lease_left(&self) -> Option<Duration> {
        let now = self.inner.clock.boot_nanos();
        let leading = self.inner.leading.lock();
        let left = leading.as_ref().map(|l| l.holder.left(now));
        left.map(Duration::from_nanos)
    }

    /// Has the consensus leader append a command: what the catalogue said to it. None: it is not known whether it was appended.
    pub async fn propose(&self, command: Command) -> Option<Result<(), Refused>> {
        let to = self.inner.consensus.leader()?;
        self.inner.propose(to, command).await
    }

    /// The copy here acknowledges nothing of terms below this one any more: this member asks for no lease of them.
    pub fn step_down(&self, term: u64) {
        self.inner.step_down(term);
    }

    /// The members that the consensus leader reaches, this one and the leader included; as of the last second or two.
    pub fn reached(&self) -> BTreeSet<NodeId> {
        self.inner.reached.lock().0.clone()
    }

    /// Ready when the consensus has ended here, which a write that failed does; why. This member takes no part from then on.
    pub async fn failed(&self) -> String {
        let mut failed = self.inner.failed.subscribe();
        let why = failed.wait_for(Option::is_some).await;
        why.expect("the sender is ours")
            .clone()
            .expect("waited for")
    }

    /// Whether the members have a majority that this one reaches. An election is waited for: a majority that has just lost its leader is one all the same.
    pub async fn has_majority(&self) -> bool {
        let until = Instant::now() + ELECTION;
        loop {
            let confirmed = async {
                let to = self.inner.consensus.leader()?;
                self.inner.ask::<bool>(to, Word::Confirm).await
            };
            if let Ok(Some(true)) = timeout(ANSWERS, confirmed).await {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(TICK).await;
        }
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
        match Said::decode(message)? {
            Said::Consensus(message) => self.0.consensus.hear(message).await,
            Said::Word(word) => self.0.answer(word).await,
        }
    }
}

impl Inner {
    fn catalogue(&self) -> Catalogue {
        self.consensus.catalogue().borrow().clone()
    }

    /// How long leases are.
    fn terms(&self, catalogue: &Catalogue) -> Terms {
        self.terms.agreed(catalogue.policies().lease)
    }

    async fn answer(self: &Arc<Inner>, word: Word) -> io::Result<Vec<u8>> {
        let answer = match word {
            Word::Lease { request, .. } => serde_json::to_vec(&self.grant(request).await.is_some()),
            Word::Propose(command) => {
                serde_json::to_vec(&self.consensus.propose(command).await.ok())
            }
            Word::Confirm => serde_json::to_vec(&self.consensus.confirm().await.is_ok()),
            Word::Promise { term } => {
                let data = self.data.clone();
                let promised = spawn_blocking(move || data.promise(term));
                let mut answer = promised.await.map_err(io::Error::other)??;
                if let Answer::Promised(said) = &mut answer {
                    said.failed = self.unable.load(Ordering::SeqCst);
                    self.step_down(term);
                }
                serde_json::to_vec(&answer)
            }
            Word::Reach => serde_json::to_vec(&self.reach(REACH)),
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
    async fn grant(&self, request: Request) -> Option<()> {
        self.elections();
        // Noted before a majority is asked, and not before the time that the grantor counts from.
        let now = self.clock.boot_nanos();
        self.consensus.grants();
        let catalogue = self.catalogue();
        let received = |c: &mut (u64, Failover)| c.1.requested(&catalogue, request, now);
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
            let terms = self.terms(&self.catalogue());
            let elected = |term| Failover::elected(terms, now, self.consensus.before(term));
            *control = won.map(|term| (term, elected(term)));
        }
    }

    /// All that is to be done now. What waits does so in tasks of its own.
    fn act(self: &Arc<Inner>) {
        if let Some(why) = self.consensus.failed() {
            self.failed.send_if_modified(|known| {
                let first = known.is_none();
                known.get_or_insert(why);
                first
            });
            return;
        }
        self.elections();
        let catalogue = self.catalogue();
        self.tell(&catalogue);
        self.look_around();
        self.lead(&catalogue);
        self.supervise(&catalogue);
        if self.consensus.won().is_some() && !self.fitting.swap(true, Ordering::AcqRel) {
            let this = self.clone();
            let reached = self.reach(ANSWERS);
            spawn(async move {
                // An error is a leader that changes just now; the next tick tries again.
                let _ = this.consensus.fit(&reached).await;
                this.fitting.store(false, Ordering::Release);
            });
        }
    }

    /// Members that answered here lately, and this one.
    fn reach(&self, within: Duration) -> BTreeSet<NodeId> {
        let since = self.clock.boot_nanos().saturating_sub(nanos(within));
        let heard = self.heard.0.lock();
        let lately = heard.iter().filter(|(_, at)| **at >= since);
        lately.map(|(id, _)| *id).chain([self.me]).collect()
    }

    /// Asks the consensus leader now and then which members it reaches.
    fn look_around(self: &Arc<Inner>) {
        let now = self.clock.boot_nanos();
        let Some(to) = self.consensus.leader() else {
            self.reached.lock().0.clear();
            return;
        };
        if to == self.me {
            *self.reached.lock() = (self.reach(REACH), now);
            return;
        }
        let mut reached = self.reached.lock();
        if now.saturating_sub(reached.1) < nanos(AGAIN) {
            return;
        }
        reached.1 = now;
        drop(reached);
        let this = self.clone();
        spawn(async move {
            let all: Option<BTreeSet<NodeId>> = this.ask(to, Word::Reach).await;
            this.reached.lock().0 = all.unwrap_or_default();
        });
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
        drop(told);
        if node == self.me {
            self.named(term, self.terms(catalogue));
        }
        let this = self.clone();
        spawn_blocking(move || {
            let _one = this.telling.lock();
            // Another phase may have been told while this one waited for its turn.
            if *this.told.lock() != Some(phase) {
                return;
            }
            this.tries(term, true, 0);
            let done = match node == this.me {
                true => this.data.lead(term).map(|begun| this.begins(term, begun)),
                false => this.data.follow(node, term).map(|()| {
                    // What failed may go well by the time that it is named again.
                    this.unable.store(0, Ordering::SeqCst);
                    this.step_down(term);
                }),
            };
            if let Err(e) = done {
                // A server that is about to start has not tried.
                let tried = e.kind() != io::ErrorKind::NotConnected;
                this.tries(term, false, u32::from(tried));
                if tried && node == this.me {
                    this.unable.fetch_add(1, Ordering::SeqCst);
                }
                // It is told again.
                let mut told = this.told.lock();
                if *told == Some(phase) {
                    *told = None;
                }
            }
        });
    }

    /// This copy is named. It asks for its lease from now on: to begin may take longer than a lease.
    fn named(&self, term: u64, terms: Terms) {
        let mut leading = self.leading.lock();
        if leading.as_ref().is_some_and(|l| l.term >= term) {
            return;
        }
        // No lease of an older term counts for this one.
        self.lease.1.store(0, Ordering::SeqCst);
        self.lease.0.store(term, Ordering::SeqCst);
        *leading = Some(Leading {
            term,
            begun: Begun::Not {
                since: None,
                failed: 0,
            },
            holder: Holder::new(terms, self.me, term, self.life),
            waiting: Waiting::new(term),
            asked: None,
        });
    }

    fn begins(&self, term: u64, begun: bool) {
        if begun {
            self.unable.store(0, Ordering::SeqCst);
        }
        if let Some(l) = self.leading.lock().as_mut().filter(|l| l.term == term) {
            l.begun = match begun {
                true => Begun::Yes,
                false => Begun::Never,
            };
        }
        self.moved.notify_one();
    }

    /// A try to begin this term is under way from now on, or not any more.
    fn tries(&self, term: u64, tries: bool, more: u32) {
        let now = self.clock.boot_nanos();
        if let Some(l) = self.leading.lock().as_mut().filter(|l| l.term == term)
            && let Begun::Not { since, failed } = &mut l.begun
        {
            *since = tries.then_some(now);
            *failed += more;
        }
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
        let terms = self.terms(catalogue);
        l.holder.agree(terms);
        self.lease
            .1
            .fetch_min(l.holder.until().unwrap_or(0), Ordering::SeqCst);
        let leads = match l.begun {
            // A try that fails at once never gets that far.
            Begun::Not { since, failed } => {
                let takes_long = since.is_some_and(|at| now.saturating_sub(at) >= nanos(TICK));
                match takes_long && failed < TRIES {
                    true => Leads::Yes,
                    false => Leads::Unknown,
                }
            }
            Begun::Yes => self.data.leads(l.term),
            Begun::Never => Leads::No,
        };
        let command = match leads {
            Leads::Yes => l.waiting.tick(catalogue, seen, now),
            // A copy that has heard of a later term leads no more, whatever the catalogue says. It has all that it acknowledged, and asks to be asked.
            Leads::No if catalogue.leads_term(self.me, l.term) => Some(Command::Begin {
                after: l.term,
                above: 0,
            }),
            Leads::No | Leads::Unknown => None,
        };
        if let Some(command) = command {
            let this = self.clone();
            spawn(async move {
                // Proposed again at a later tick, if it is still due.
                this.propose_once(to, command).await;
            });
        }
        if leads != Leads::Yes {
            return;
        }
        // A new consensus leader is asked at once: it waits for this.
        let again = |(at, of)| of == to && now.saturating_sub(at) < nanos(terms.every);
        if l.asked.is_some_and(again) {
            return;
        }
        l.asked = Some((now, to));
        let request = l.holder.request(now);
        drop(leading);
        let this = self.clone();
        spawn(async move {
            let granted: Option<bool> = this.ask(to, Word::Lease { request, end }).await;
            let now = this.clock.boot_nanos();
            if let (Some(true), Some(l)) = (granted, this.leading.lock().as_mut()) {
                l.holder.granted(request, now);
                let until = l.holder.until().unwrap_or(0);
                this.lease.1.store(until, Ordering::SeqCst);
                this.data.holds_until(l.term, until);
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
            spawn(async move {
                match action {
                    Action::Propose(command) => this.propose_once(this.me, command).await,
                    Action::Ask { node, term } => this.ask_copy(node, term).await,
                }
            });
        }
    }

    /// Asks a copy under this term, unless it was asked just now and has not answered yet.
    async fn ask_copy(self: &Arc<Inner>, node: NodeId, term: u64) {
        let now = self.clock.boot_nanos();
        let before = self.asking.lock().get(&(node, term)).copied();
        if before.is_some_and(|at| now.saturating_sub(at) < nanos(AGAIN)) {
            return;
        }
        self.asking.lock().insert((node, term), now);
        let answer = self.send(node, Word::Promise { term }).await;
        let answer = answer.and_then(|a| Answer::decode(&a).ok());
        self.asking
            .lock()
            .retain(|(n, of), _| *n != node || *of > term);
        if let (Some(answer), Some((_, failover))) = (answer, self.control.lock().as_mut()) {
            failover.answered(term, node, answer);
            self.moved.notify_one();
        }
    }

    /// The same, unless it is under way: what is due is proposed at each look. A consensus leader without a majority answers no proposal, and each one stays in its log.
    async fn propose_once(self: &Arc<Inner>, to: NodeId, command: Command) {
        let one = (to, command.clone());
        {
            let mut all = self.proposing.lock();
            if all.contains(&one) {
                return;
            }
            all.push(one.clone());
        }
        let _under_way = UnderWay { inner: self, one };
        let proposed = self.propose(to, command);
        // Here it ends when a majority has it, or when this member leads no more; not where a snapshot has taken the place of its entry.
        let limit = if to == self.me { FORGOTTEN } else { ANSWERED };
        _ = timeout(limit, proposed).await;
    }

    async fn propose(
        self: &Arc<Inner>,
        to: NodeId,
        command: Command,
    ) -> Option<Result<(), Refused>> {
        let said: Option<Option<Result<(), Refused>>> = self.ask(to, Word::Propose(command)).await;
        said.flatten()
    }

    /// Asks another member, or this one.
    async fn ask<T: serde::de::DeserializeOwned>(
        self: &Arc<Inner>,
        to: NodeId,
        word: Word,
    ) -> Option<T> {
        let answer = self.send(to, word).await?;
        serde_json::from_slice(&answer).ok()
    }

    /// The bytes of the answer.
    async fn send(self: &Arc<Inner>, to: NodeId, word: Word) -> Option<Vec<u8>> {
        let answer = if to == self.me {
            Box::pin(self.answer(word)).await
        } else {
            let message = Said::Word(word).encode();
            self.carry.carry(to, message).await
        };
        answer.ok()
    }
}
