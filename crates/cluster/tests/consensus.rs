//! Members of one consensus in one process, with messages over channels that can be cut and disks that lose their power.

use cluster::consensus::Carried;
use cluster::{Carry, Catalogue, Command, Consensus, Kind, Member, NodeId, Policies, Timing};
use env::{Clock, Env, MemDisk, OsClock, PowerCut};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Only a hang reaches it.
const HANG: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Net {
    members: Mutex<BTreeMap<NodeId, Consensus>>,
    cut: Mutex<BTreeSet<NodeId>>,
    /// Members that get no messages and may send some still: the others do not count them as members.
    gone: Mutex<BTreeSet<NodeId>>,
    /// Members that do not know a message of this name, as those of an earlier build.
    old: Mutex<(BTreeSet<NodeId>, &'static str)>,
}

impl Net {
    fn is_unknown(&self, to: NodeId, message: &[u8]) -> bool {
        let (members, name) = &*self.old.lock().unwrap();
        let begin = format!("{{\"{name}\"");
        members.contains(&to) && message.starts_with(begin.as_bytes())
    }
}

/// One member's way into the net.
struct From {
    me: NodeId,
    net: Arc<Net>,
}

impl Carry for From {
    fn carry(&self, to: NodeId, message: Vec<u8>) -> Carried<'_> {
        Box::pin(async move {
            let away = |id| self.net.cut.lock().unwrap().contains(&id);
            let target = self.net.members.lock().unwrap().get(&to).cloned();
            if self.net.gone.lock().unwrap().contains(&to) {
                return Err(io::ErrorKind::NotFound.into());
            }
            match target {
                Some(_) if self.net.is_unknown(to, &message) => {
                    Err(io::ErrorKind::InvalidData.into())
                }
                Some(member) if !away(self.me) && !away(to) => member.hear(&message).await,
                _ => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

struct World {
    net: Arc<Net>,
    disks: BTreeMap<NodeId, MemDisk>,
}

impl World {
    fn new() -> World {
        World {
            net: Arc::default(),
            disks: BTreeMap::new(),
        }
    }

    async fn start(&mut self, me: NodeId) -> Consensus {
        let disk = self.disks.entry(me).or_default().clone();
        let carry = Arc::new(From {
            me,
            net: self.net.clone(),
        });
        let env = Env::os().with_disk(Arc::new(disk));
        let opened = Consensus::open(&env, Path::new("consensus"), me, carry, Timing::default());
        let member = opened.await.expect("it opens");
        let old = self.net.members.lock().unwrap().insert(me, member.clone());
        assert!(old.is_none(), "a member is started once");
        member
    }

    /// The machine loses its power.
    async fn crash(&mut self, me: NodeId, cut: PowerCut) {
        let member = self.net.members.lock().unwrap().remove(&me);
        self.disks[&me].power_cut(cut);
        member.expect("it runs").stop().await.expect("it stops");
    }

    fn all(&self) -> Vec<Consensus> {
        self.net.members.lock().unwrap().values().cloned().collect()
    }

    /// Proposes at whichever member leads, until it is appended.
    async fn propose(&self, command: &Command) {
        until("a proposal is appended", async || {
            for member in self.all() {
                let proposed =
                    tokio::time::timeout(Duration::from_secs(5), member.propose(command.clone()));
                if let Ok(Ok(_)) = proposed.await {
                    return true;
                }
            }
            false
        })
        .await;
    }

    /// The members vote as the catalogue says.
    async fn fit(&self, voters: &[NodeId]) {
        let voters: BTreeSet<NodeId> = voters.iter().copied().collect();
        until("voters are as they should be", async || {
            let reached: BTreeSet<NodeId> =
                self.net.members.lock().unwrap().keys().copied().collect();
            for member in self.all() {
                // An error is a leader that changes just now; the next round sees it.
                let fit = tokio::time::timeout(Duration::from_secs(5), member.fit(&reached));
                let _ = fit.await;
            }
            self.all().iter().all(|m| m.voters() == voters)
        })
        .await;
    }

    async fn agree(&self, is: impl Fn(&Catalogue) -> bool) {
        until("all have the same catalogue", async || {
            let all = self.all();
            let first = all[0].catalogue().borrow().clone();
            is(&first) && all.iter().all(|m| *m.catalogue().borrow() == first)
        })
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

fn member(id: NodeId) -> Member {
    Member {
        name: format!("n{id}"),
        address: format!("n{id}:5433"),
        kind: Kind::Server,
        level: 0,
    }
}

fn loss(n: u64) -> Command {
    let policies = Policies {
        max_loss: Some(n),
        ..Policies::default()
    };
    let before = None;
    Command::Set { policies, before }
}

async fn three() -> World {
    let mut world = World::new();
    let first = world.start(1).await;
    first.found(member(1), 1).await.expect("a cluster of one");
    for id in [2, 3] {
        world.start(id).await;
        let member = member(id);
        world.propose(&Command::Join { node: id, member }).await;
        world.fit(if id == 2 { &[1] } else { &[1, 2, 3] }).await;
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_becomes_three_and_outlives_its_leader() {
    let mut world = three().await;
    world
        .agree(|c| c.members().len() == 3 && c.wanted() == 1)
        .await;
    for round in 0..3 {
        let leader = async || world.all().iter().find_map(|m| m.leader());
        until("there is a leader", async || leader().await.is_some()).await;
        let gone = leader().await.expect("it was there");
        world.crash(gone, PowerCut::Random(round)).await;
        // Two of three go on, and what they agree on is there when the third is back.
        world.propose(&loss(round)).await;
        world.agree(|c| c.policies().max_loss == Some(round)).await;
        world.start(gone).await;
        world.agree(|c| c.policies().max_loss == Some(round)).await;
    }
    // The whole cluster loses its power. Nothing that was agreed on is forgotten.
    for id in 1..=3 {
        world.crash(id, PowerCut::LoseAll).await;
    }
    for id in 1..=3 {
        world.start(id).await;
    }
    world.agree(|c| c.policies().max_loss == Some(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_confirms_nothing() {
    let world = three().await;
    let leads = |m: &Consensus, id| m.leader() == Some(id);
    until("all know one leader", async || {
        (1..=3).any(|id| world.all().iter().all(|m| leads(m, id)))
    })
    .await;
    let all = world.all();
    let old = all[0].leader().expect("all know it");
    world.net.cut.lock().unwrap().insert(old);
    let index = usize::try_from(old - 1).expect("one of three");
    until("the others have another leader", async || {
        let others = all.iter().filter(|m| !std::ptr::eq(*m, &all[index]));
        others
            .into_iter()
            .all(|m| m.leader().is_some_and(|l| l != old))
    })
    .await;
    let confirmed = tokio::time::timeout(Duration::from_secs(3), all[index].confirm()).await;
    assert!(
        !matches!(confirmed, Ok(Ok(()))),
        "it leads nothing any more"
    );
    world.net.cut.lock().unwrap().clear();
    until("one leader confirms", async || {
        for m in &all {
            let confirm = tokio::time::timeout(Duration::from_secs(5), m.confirm());
            if let Ok(Ok(())) = confirm.await {
                return true;
            }
        }
        false
    })
    .await;
}

/// With two members left the primary alone would vote. While it is gone, this would end the consensus for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_while_the_primary_is_gone_does_not_end_the_consensus() {
    let world = three().await;
    world.net.cut.lock().unwrap().insert(1);
    world.propose(&Command::Leave { node: 3 }).await;
    let left = |c: &Catalogue| c.members().len() == 2;
    let all = world.all();
    until("the other two have it", async || {
        all[1..].iter().all(|m| left(&m.catalogue().borrow()))
    })
    .await;
    let reached = BTreeSet::from([2, 3]);
    for _ in 0..20 {
        for member in &all[1..] {
            let fit = tokio::time::timeout(Duration::from_millis(100), member.fit(&reached));
            let _ = fit.await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Two of the three votes are there still.
    world.propose(&loss(5)).await;
    let voters = BTreeSet::from([1, 2, 3]);
    assert!(all[1..].iter().all(|m| m.voters() == voters));
}

/// A leader that was taken out hears of no other one, as it gets no messages any more. It must not take itself for the leader for ever: its server would not ask
/// whether it is a member still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_taken_out_leads_no_more() {
    let mut world = three().await;
    world.start(4).await;
    let joins = Command::Join {
        node: 4,
        member: member(4),
    };
    world.propose(&joins).await;
    world.fit(&[1, 2, 3]).await;
    until("there is a leader", async || {
        world.all().iter().any(|m| m.won().is_some())
    })
    .await;
    let all = world.all();
    let old = all.iter().position(|m| m.won().is_some());
    let old = old.expect("it was there");
    let id = old as NodeId + 1;
    if id == 1 {
        // The leader of the data could not leave.
        world.propose(&Command::HandOver { term: 1, to: 2 }).await;
    }
    world.propose(&Command::Leave { node: id }).await;
    let others: BTreeSet<NodeId> = (1..=4).filter(|other| *other != id).collect();
    until("the leader has taken itself out", async || {
        // An error is a leader that leads no more.
        let fit = tokio::time::timeout(Duration::from_secs(5), all[old].fit(&others));
        let _ = fit.await;
        all[old].won().is_none()
    })
    .await;
    world.net.gone.lock().unwrap().insert(id);
    until("the others have a leader", async || {
        let won = |m: &&Consensus| m.won().is_some();
        all.iter().any(|m| won(&m))
    })
    .await;
    assert_eq!(all[old].leader(), None);
}

/// Half-way the first voter alone is a majority of the old ones. If the change stayed there, its loss would end the consensus.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_voters_that_broke_off_is_ended() {
    let mut world = World::new();
    let first = world.start(1).await;
    first.found(member(1), 1).await.expect("a cluster of one");
    for id in [2, 3] {
        world.start(id).await;
        let member = member(id);
        world.propose(&Command::Join { node: id, member }).await;
    }
    world.net.cut.lock().unwrap().extend([2, 3]);
    let voters = BTreeSet::from([1, 2, 3]);
    // As at a member that ends here: the second half is not asked for.
    let begun = tokio::time::timeout(Duration::from_secs(1), first.fit(&voters)).await;
    assert!(begun.is_err(), "it waits for the others");
    world.net.cut.lock().unwrap().clear();
    // Behind the first half in the log.
    world.propose(&loss(1)).await;
    world.agree(|c| c.policies().max_loss == Some(1)).await;
    world.fit(&[1, 2, 3]).await;
    drop(first);
    world.crash(1, PowerCut::Random(0)).await;
    world.propose(&loss(5)).await;
    world.agree(|c| c.policies().max_loss == Some(5)).await;
}

/// Crashes the leader: how long after that the next one counts leases of earlier leaders from, in nanoseconds. Negative: from before the crash.
async fn counts_from(world: &mut World) -> i128 {
    let leader = async || world.all().iter().find_map(Consensus::leader);
    until("there is a leader", async || leader().await.is_some()).await;
    let gone = leader().await.expect("it was there");
    world.crash(gone, PowerCut::LoseAll).await;
    let crashed = OsClock::new().boot_nanos();
    world.propose(&loss(5)).await;
    let all = world.all();
    let won = all.iter().find_map(|m| Some(m.before(m.won()?).granted));
    i128::from(won.expect("one has won")) - i128::from(crashed)
}

/// A vote says how old the last lease may be. While a cluster is upgraded member by member, a voter may not know how to say that. Its vote counts all the same,
/// and it is taken for one that took part just now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_silence_before_an_election_counts_where_the_voters_say_so() {
    let mut least = i128::MAX;
    for _ in 0..5 {
        // On a busy machine a second election may follow at once, and the first leader's messages count then.
        least = least.min(counts_from(&mut three().await).await);
        if least <= 0 {
            break;
        }
    }
    assert!(least <= 0, "{least}");
    let mut world = three().await;
    *world.net.old.lock().unwrap() = (BTreeSet::from([1, 2, 3]), "Ballot");
    // A majority has missed the leader for a while when it votes.
    assert!(counts_from(&mut world).await > 300_000_000);
}

/// The text with one number behind one of these words made the greatest there is, for each of them.
fn at_the_edge(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for word in ["\"term\":", "\"index\":"] {
        for (at, _) in text.match_indices(word) {
            let (before, rest) = text.split_at(at + word.len());
            let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            all.push(format!("{before}{}{behind}", u64::MAX));
        }
    }
    all
}

/// openraft takes what a member says as true. Numbers that cannot be are refused before it has them, and the member goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_cannot_be_end_no_member() {
    let world = three().await;
    let id = r#"{"leader_id":{"term":1,"node_id":1},"index":3}"#;
    let vote = r#"{"leader_id":{"term":1,"node_id":1},"committed":true}"#;
    let entry = |index| {
        format!(
            r#"{{"log_id":{{"leader_id":{{"term":1,"node_id":1}},"index":{index}}},"payload":{{"Normal":{{"Took":{{"node":1,"term":1}}}}}}}}"#
        )
    };
    let append = |entries: &[String]| {
        let entries = entries.join(",");
        format!(
            r#"{{"Append":{{"vote":{vote},"prev_log_id":{id},"entries":[{entries}],"leader_commit":{id}}}}}"#
        )
    };
    let members =
        format!(r#"{{"log_id":{id},"membership":{{"configs":[[1]],"nodes":{{"1":{{}}}}}}}}"#);
    let meta = format!(r#"{{"last_log_id":{id},"last_membership":{members},"snapshot_id":"1"}}"#);
    let good = [
        append(&[entry(4)]),
        format!(r#"{{"Vote":{{"vote":{vote},"last_log_id":{id}}}}}"#),
        format!(r#"{{"Ballot":{{"vote":{vote},"last_log_id":{id}}}}}"#),
        format!(
            r#"{{"Snapshot":{{"vote":{vote},"meta":{meta},"offset":0,"data":[1],"done":true}}}}"#
        ),
        format!(r#"{{"Stand":{{"candidate":1,"last":{id}}}}}"#),
    ];
    let mut bad: Vec<String> = good.iter().flat_map(|text| at_the_edge(text)).collect();
    assert_eq!(bad.len(), 8 + 3 + 3 + 5 + 2, "each number is one of them");
    bad.push(append(&[entry(5)]));
    bad.push(append(&[entry(4), entry(4)]));
    for text in &good {
        let read = cluster::consensus::Message::decode(text.as_bytes());
        assert!(read.is_ok(), "{text}: {read:?}");
    }
    for text in &bad {
        for member in world.all() {
            let heard = member.hear(text.as_bytes()).await;
            assert!(heard.is_err(), "{text}: {heard:?}");
        }
    }
    world.propose(&loss(7)).await;
    world.agree(|c| c.policies().max_loss == Some(7)).await;
    assert!(world.all().iter().all(|m| m.failed().is_none()));
}
