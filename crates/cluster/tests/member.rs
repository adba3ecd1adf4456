//! Three members with openraft, leases and the fail-over decider at work, over copies of data that are lists in memory.
//!
//! A writer at each copy writes as long as the copy leads, and counts what may be acknowledged. The primary is killed or cut off. The test waits for the
//! next commit elsewhere, and looks whether the new leader has all that was acknowledged.

use cluster::consensus::Carried;
use cluster::member::{Data, Ear, Leads};
use cluster::waiting::Seen;
use cluster::{
    Answer, Carry, Command, End, Kind, Member, NodeId, Phase, RunningMember, Standing, Terms,
    Timing,
};
use env::{Action, Disk, Env, Fault, FaultyDisk, MemDisk, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Only a hang reaches it.
const HANG: Duration = Duration::from_secs(120);
const ALL: [NodeId; 3] = [1, 2, 3];

/// What a machine keeps: the log, and the promise.
#[derive(Default)]
struct Copy {
    log: Vec<(u64, u64)>,
    term: u64,
    standing: Standing,
    leads: Option<Order>,
    /// Nothing begins here as long as this holds.
    slow: bool,
    /// No term can begin here.
    broken: bool,
}

struct Order {
    term: u64,
    start: usize,
    acked: BTreeMap<NodeId, usize>,
    acknowledged: usize,
}

struct Shared(Mutex<Copy>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Copy> {
        self.0.lock().unwrap()
    }
}

impl Data for Shared {
    fn promise(&self, term: u64) -> io::Result<Answer> {
        let mut copy = self.lock();
        let Some(standing) = copy.standing.asked(term) else {
            return Ok(Answer::Later(copy.standing.promised()));
        };
        copy.standing = standing;
        if copy.leads.as_ref().is_some_and(|l| l.term < term) {
            copy.leads = None;
        }
        let position = copy.log.len() as u64;
        let term = copy.term;
        Ok(Answer::Promised(End { term, position }.into()))
    }

    fn lead(&self, term: u64) -> io::Result<bool> {
        while self.lock().slow {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut copy = self.lock();
        if copy.broken {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let Some(standing) = copy.standing.asked(term) else {
            return Ok(false);
        };
        copy.standing = standing;
        if copy.term < term {
            copy.log.push((term, 0));
            copy.term = term;
        }
        let start = copy.log.iter().rposition(|r| *r == (term, 0));
        copy.leads = Some(Order {
            term,
            start: start.expect("the term begins in its leader's log") + 1,
            acked: BTreeMap::new(),
            acknowledged: 0,
        });
        Ok(true)
    }

    fn leads(&self, term: u64) -> Leads {
        let copy = self.lock();
        match &copy.leads {
            Some(l) if l.term == term => Leads::Yes,
            _ => Leads::No,
        }
    }

    fn follow(&self, _leader: NodeId, term: u64) -> io::Result<()> {
        let mut copy = self.lock();
        if copy.leads.as_ref().is_some_and(|l| l.term < term) {
            copy.leads = None;
        }
        Ok(())
    }

    fn seen(&self) -> (Seen, u64) {
        let copy = self.lock();
        let end = copy.log.len();
        let Some(l) = &copy.leads else {
            let nothing = Seen {
                waits: false,
                hold_all: 0,
                keep_up: 0,
                waited: 0,
            };
            return (nothing, end as u64);
        };
        let all = l.acknowledged.max(l.start);
        let hold_all = l.acked.values().filter(|len| **len >= all).count();
        let seen = Seen {
            waits: l.acknowledged < end,
            hold_all,
            keep_up: hold_all,
            waited: usize::MAX,
        };
        (seen, end as u64)
    }
}

#[derive(Default)]
struct World {
    copies: BTreeMap<NodeId, Arc<Shared>>,
    disks: BTreeMap<NodeId, MemDisk>,
    up: Mutex<BTreeMap<NodeId, Arc<RunningMember>>>,
    ears: Mutex<BTreeMap<NodeId, Ear>>,
    cut: Mutex<BTreeSet<NodeId>>,
    /// What was acknowledged, and under which term last.
    acknowledged: Mutex<(BTreeSet<u64>, u64)>,
    next: Mutex<u64>,
    reads: Mutex<u64>,
}

struct Net {
    me: NodeId,
    world: Arc<World>,
}

impl Carry for Net {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        Box::pin(async move {
            let ear = self.world.ears.lock().unwrap().get(&to).cloned();
            match ear {
                Some(ear) if self.world.joined(self.me, to) => {
                    let answer = ear.hear(&message).await;
                    // The answer takes the same way.
                    match self.world.joined(self.me, to) {
                        true => answer,
                        false => Err(io::ErrorKind::TimedOut.into()),
                    }
                }
                _ => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

impl World {
    fn joined(&self, a: NodeId, b: NodeId) -> bool {
        let cut = self.cut.lock().unwrap();
        a == b || (!cut.contains(&a) && !cut.contains(&b))
    }

    async fn start(self: &Arc<World>, me: NodeId) {
        let world = self.clone();
        let env = Env::os().with_disk(Arc::new(self.disks[&me].clone()));
        let opened = RunningMember::open(
            &env,
            Path::new("consensus"),
            me,
            Arc::new(Net { me, world }),
            self.copies[&me].clone(),
            Timing::default(),
            Terms::default(),
        );
        let member = Arc::new(opened.await.expect("it opens"));
        self.ears.lock().unwrap().insert(me, member.ear());
        self.up.lock().unwrap().insert(me, member);
    }

    /// The process is gone. Its disk stays.
    async fn kill(&self, me: NodeId) {
        self.ears.lock().unwrap().remove(&me);
        let member = self.up.lock().unwrap().remove(&me).expect("it runs");
        self.copies[&me].lock().leads = None;
        member.stop().await.expect("it stops");
    }

    fn at(&self, id: NodeId) -> Option<Arc<RunningMember>> {
        self.up.lock().unwrap().get(&id).cloned()
    }

    /// One write and one strong read at this copy, if it leads.
    fn write(&self, me: NodeId) {
        let Some(member) = self.at(me) else { return };
        self.read(me, &member);
        let (term, log) = {
            let mut copy = self.copies[&me].lock();
            let Some(term) = copy.leads.as_ref().map(|l| l.term) else {
                return;
            };
            let mut next = self.next.lock().unwrap();
            *next += 1;
            copy.log.push((term, *next));
            (term, copy.log.clone())
        };
        for other in ALL.into_iter().filter(|o| *o != me) {
            if self.at(other).is_none() || !self.joined(me, other) {
                continue;
            }
            let mut copy = self.copies[&other].lock();
            let Some(standing) = copy.standing.asked(term) else {
                continue;
            };
            copy.standing = standing;
            if copy.leads.as_ref().is_some_and(|l| l.term < term) {
                copy.leads = None;
            }
            if copy.term < term || copy.log.len() < log.len() {
                copy.log = log.clone();
                copy.term = term;
            }
            drop(copy);
            let mut copy = self.copies[&me].lock();
            if let Some(l) = copy.leads.as_mut().filter(|l| l.term == term) {
                l.acked.insert(other, log.len());
            }
        }
        self.release(me, &member, term);
    }

    fn release(&self, me: NodeId, member: &RunningMember, term: u64) {
        let wanted = member.wanted();
        let mut copy = self.copies[&me].lock();
        let Copy { log, leads, .. } = &mut *copy;
        let Some(l) = leads.as_mut().filter(|l| l.term == term) else {
            return;
        };
        let mut acked: Vec<usize> = l.acked.values().copied().collect();
        acked.sort_unstable_by(|a, b| b.cmp(a));
        let reach = match wanted {
            0 => log.len(),
            n => acked.get(n - 1).copied().unwrap_or(0).min(log.len()),
        };
        let mut all = self.acknowledged.lock().unwrap();
        if reach <= l.acknowledged || !member.may_acknowledge(term) {
            return;
        }
        assert!(all.1 <= term, "term {} has acknowledged already", all.1);
        all.1 = term;
        all.0.extend(log[l.acknowledged..reach].iter().map(|r| r.1));
        l.acknowledged = reach;
    }

    fn read(&self, me: NodeId, member: &RunningMember) {
        let before = self.acknowledged.lock().unwrap().0.clone();
        let copy = self.copies[&me].lock();
        let term = copy.leads.as_ref().map(|l| l.term);
        if !term.is_some_and(|t| member.may_acknowledge(t)) {
            return;
        }
        let shown: BTreeSet<u64> = copy.log.iter().map(|r| r.1).collect();
        let missing: Vec<_> = before.difference(&shown).collect();
        assert!(
            missing.is_empty(),
            "a strong read at {me} lacks {missing:?}"
        );
        *self.reads.lock().unwrap() += 1;
    }

    /// How many writes were acknowledged, and the term of the last.
    fn acknowledged(&self) -> (usize, u64) {
        let all = self.acknowledged.lock().unwrap();
        (all.0.len(), all.1)
    }

    async fn commits_under_a_later_term(&self, term: u64) {
        until("another leader acknowledges", async || {
            self.acknowledged().1 > term
        })
        .await;
    }

    fn primary(&self) -> NodeId {
        let term = self.acknowledged().1;
        let leads = |id: &NodeId| {
            let copy = self.copies[id].lock();
            copy.leads.as_ref().is_some_and(|l| l.term == term)
        };
        ALL.into_iter().find(leads).expect("one leads")
    }

    /// All are up, all copies count, and a fail-over would lose nothing.
    async fn is_whole(&self) {
        until(
            "each commit is held by a replica, and all copies follow",
            async || {
                ALL.iter().all(|id| {
                    let Some(member) = self.at(*id) else {
                        return false;
                    };
                    let promised = member.consensus().catalogue().borrow().promised();
                    let term = self.acknowledged().1;
                    promised == 1 && self.copies[id].lock().term == term
                })
            },
        )
        .await;
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(HANG, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(
        waited.await.is_ok(),
        "for too long it is not so that {what}"
    );
}

async fn three() -> Arc<World> {
    let mut world = World::default();
    for id in ALL {
        world.copies.insert(id, Arc::new(Shared(Mutex::default())));
        world.disks.insert(id, MemDisk::new());
    }
    let world = Arc::new(world);
    for id in ALL {
        world.start(id).await;
        let writing = world.clone();
        tokio::task::spawn(async move {
            loop {
                writing.write(id);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    let member = |id: NodeId| Member {
        name: format!("n{id}"),
        address: format!("n{id}:5433"),
        kind: Kind::Server,
        level: 0,
    };
    let first = world.at(1).expect("it runs");
    let founded = first.consensus().found(member(1), 1).await;
    founded.expect("a cluster of one");
    for id in [2, 3] {
        let join = Command::Join {
            node: id,
            member: member(id),
        };
        let joined = first.consensus().propose(join).await;
        joined.expect("appended").expect("taken");
    }
    world.is_whole().await;
    // Voters come a second after copies. Before that the first member alone decides, and its end ends the cluster.
    let voters = BTreeSet::from(ALL);
    until("all three vote", async || {
        ALL.iter().all(|id| {
            let member = world.at(*id).expect("it runs");
            member.consensus().voters() == voters && !member.consensus().is_changing_voters()
        })
    })
    .await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_primary_that_dies_is_followed_by_one_that_has_all() {
    let world = three().await;
    for _ in 0..3 {
        let (_, term) = world.acknowledged();
        let gone = world.primary();
        world.kill(gone).await;
        world.commits_under_a_later_term(term).await;
        world.start(gone).await;
        world.is_whole().await;
    }
    assert!(world.acknowledged().1 >= 4);
    until("much is written and read", async || {
        world.acknowledged().0 > 500 && *world.reads.lock().unwrap() > 500
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_primary_that_is_cut_off_stops_before_another_begins() {
    let world = three().await;
    for _ in 0..2 {
        let (_, term) = world.acknowledged();
        let old = world.primary();
        world.cut.lock().unwrap().insert(old);
        world.commits_under_a_later_term(term).await;
        let alone = world.at(old).expect("it runs");
        assert!(!alone.may_acknowledge(term), "two hold the lease");
        world.cut.lock().unwrap().clear();
        world.is_whole().await;
    }
}

/// A consensus leader without a majority takes the primary for gone, and keeps in its log what it proposes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consensus_leader_that_is_cut_off_does_not_fill_its_log() {
    let world = three().await;
    let alone = loop {
        let primary = world.primary();
        let leader = world.at(primary).and_then(|m| m.consensus().leader());
        if let Some(other) = leader.filter(|l| *l != primary) {
            break other;
        }
        let (_, term) = world.acknowledged();
        world.kill(primary).await;
        world.commits_under_a_later_term(term).await;
        world.start(primary).await;
        world.is_whole().await;
    };
    let written = || {
        let log = Path::new("consensus").join(cluster::consensus::LOG);
        world.disks[&alone].read(&log).expect("it has a log").len()
    };
    let before = written();
    world.cut.lock().unwrap().insert(alone);
    // The others write one each five milliseconds, at most. A lease is over long before.
    let (so_far, _) = world.acknowledged();
    until("the others go on", async || {
        world.acknowledged().0 > so_far + 1000
    })
    .await;
    let more = written() - before;
    assert!(
        more < 1024,
        "the log grew by {more} bytes that no member gets"
    );
    world.cut.lock().unwrap().clear();
    world.is_whole().await;
}

/// A promotion by hand at a node that is no member: all have heard of its term, which is far above theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_term_that_was_drawn_by_hand_does_not_end_the_cluster() {
    let world = three().await;
    for hand in [1 << 40, 1 << 41] {
        for id in ALL {
            let mut copy = world.copies[&id].lock();
            copy.standing = copy.standing.asked(hand).expect("a later term");
            copy.leads = None;
        }
        world.commits_under_a_later_term(hand).await;
        world.is_whole().await;
    }
    // The same while one of them is down, which hears of it later.
    let hand = 1 << 42;
    let gone = world.primary();
    for id in ALL.into_iter().filter(|id| *id != gone) {
        let mut copy = world.copies[&id].lock();
        copy.standing = copy.standing.asked(hand).expect("a later term");
    }
    world.kill(gone).await;
    world.commits_under_a_later_term(hand).await;
    world.start(gone).await;
    world.is_whole().await;
}

/// The copy that would be named first cannot begin a term, as of a disk that is full. It testifies all the same, and another one is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_that_cannot_lead_is_passed_over() {
    let world = three().await;
    for _ in 0..2 {
        let (_, term) = world.acknowledged();
        let gone = world.primary();
        let first = ALL.into_iter().find(|id| *id != gone).expect("of three");
        world.copies[&first].lock().broken = true;
        world.kill(gone).await;
        world.commits_under_a_later_term(term).await;
        assert_ne!(world.primary(), first);
        world.copies[&first].lock().broken = false;
        world.start(gone).await;
        world.is_whole().await;
    }
}

/// A named copy may have much to replay before its term begins. It is not given up meanwhile, as it asks for its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_named_copy_that_begins_slowly_is_waited_for() {
    let world = three().await;
    let (_, term) = world.acknowledged();
    let gone = world.primary();
    let others: Vec<_> = ALL.into_iter().filter(|id| *id != gone).collect();
    for id in &others {
        world.copies[id].lock().slow = true;
    }
    world.kill(gone).await;
    let named = || {
        let member = world.at(others[0]).expect("it runs");
        let phase = member.consensus().catalogue().borrow().phase();
        match phase {
            Some(Phase::Leading { node, term: now }) if now > term => Some((node, now)),
            _ => None,
        }
    };
    let holds = async || {
        let Some((node, term)) = named() else {
            return false;
        };
        let member = world.at(node).expect("it runs");
        member.may_acknowledge(term)
    };
    until(
        "the copy that is named has a lease before it has begun",
        holds,
    )
    .await;
    for id in &others {
        world.copies[id].lock().slow = false;
    }
    world.commits_under_a_later_term(term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_consensus_log_that_cannot_be_written_is_told_and_read_again_later() {
    let disk = FaultyDisk::new(Arc::new(MemDisk::new()));
    let env = Env::os().with_disk(Arc::new(disk.clone()));
    let open = async || {
        let opened = RunningMember::open(
            &env,
            Path::new("consensus"),
            1,
            Arc::new(Net {
                me: 1,
                world: Arc::default(),
            }),
            Arc::new(Shared(Mutex::default())),
            Timing::default(),
            Terms::default(),
        );
        opened.await.expect("it opens")
    };
    let member = open().await;
    let founder = Member {
        name: "n1".into(),
        address: "n1:5433".into(),
        kind: Kind::Server,
        level: 0,
    };
    let founded = member.consensus().found(founder, 1).await;
    founded.expect("a cluster of one");
    disk.inject(Fault {
        op: Op::SyncData,
        path: "consensus".into(),
        nth: 1,
        action: Action::Error(io::ErrorKind::StorageFull),
    });
    let appended = member.consensus().propose(Command::Restore).await;
    assert!(appended.is_err());
    let why = tokio::time::timeout(HANG, member.failed()).await;
    let why = why.expect("it is told");
    assert!(!why.is_empty());
    _ = member.stop().await;
    drop(member);
    let again = open().await;
    until("it leads again", async || {
        let restored = again.consensus().propose(Command::Restore).await;
        restored.is_ok_and(|r| r.is_ok())
    })
    .await;
}

/// A copy that promised it could take no record any more, of any leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_promises_no_term_after_which_none_can_come() {
    let world = three().await;
    for id in ALL {
        let ear = world.ears.lock().unwrap()[&id].clone();
        let asked = ear
            .hear(br#"W{"Promise":{"term":18446744073709551615}}"#)
            .await;
        assert_eq!(asked.map_err(|e| e.kind()), Err(io::ErrorKind::InvalidData));
        assert!(world.copies[&id].lock().standing.promised() < 1 << 62);
    }
    let written = world.acknowledged().0;
    until("it goes on", async || world.acknowledged().0 > written).await;
}
