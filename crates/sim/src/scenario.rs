//! What chance brings about too seldom, step by step. The seed still decides everything between the steps.

use crate::follower::{FIRST_WORD, Follower};
use crate::machine::Running;
use crate::network::Weather;
use crate::world::World;
use crate::{Report, caught};
use base::Position;
use node::Node;

/// Steps until the next thing of a scenario happens, at most.
const MOST: usize = 60_000;

/// A commit is at two of four nodes, as its policy asks, and they are lost one after the other: the old primary comes back with more than
/// its successor has, and while it gives that up the successor is lost. What both had is now at one node, which must not have taken it away.
pub fn lost_as_the_old_primary_comes_back(seed: u64, loud: bool) -> Result<Report, String> {
    caught(calm(seed, loud), |w| {
        w.all_follow();
        w.net.cut = vec![2, 3];
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| {
            let has = |i: usize| w.machines[i].follower().and_then(Follower::received);
            w.report.acknowledged > before + 3 && has(1) > has(2).max(has(3))
        });
        // The primary writes on, alone.
        w.net.cut = vec![0];
        w.go("write alone", |w| {
            let one = w.machines[1].follower().filter(|f| f.is_ring_empty());
            let one = one.and_then(Follower::received);
            let zero = w.machines[0].primary().expect("it leads");
            one.is_some_and(|one| zero.flushed() > one)
        });
        w.crash(0);
        w.net.cut = vec![2, 3];
        w.take_over(1);
        let begun = w.report.bootstraps;
        w.go("come back", |w| {
            let back = w.machines[0].follower();
            let follows = back.is_some_and(|f| f.node.is_some());
            w.report.set_aside > 0 && (follows || w.report.bootstraps > begun)
        });
        w.crash(1);
        w.take_over(0);
        w.net.cut.clear();
        w.heal()
    })
}

/// A primary writes what no other node has and is lost; it comes back as a replica of a successor that it does not reach. One replica must have
/// a commit, and its log has more than any has: that is shown to nobody, and set aside when it hears of its successor.
pub fn the_old_primary_cannot_ask(seed: u64, loud: bool) -> Result<Report, String> {
    caught(calm(seed, loud), |w| {
        w.all_follow();
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        w.net.cut = vec![0];
        let shipped = |w: &World| {
            w.machines[0]
                .primary()
                .map_or(Position::ZERO, |p| p.flushed())
        };
        let cut_at = shipped(w);
        w.go("write alone", |w| shipped(w) > cut_at);
        w.crash(0);
        let (best, considered) = w.best_candidate(false).expect("the others are up");
        w.considered = considered;
        w.promote(best, true);
        w.go("come back", |w| w.machines[0].follower().is_some());
        let back = w.now;
        w.go("wait for a word", |w| w.now > back + 2 * FIRST_WORD);
        let shown = w.machines[0].follower().map(|f| f.shown());
        assert_eq!(shown, Some(None), "it shows what is its own alone");
        w.net.cut.clear();
        w.go("set it aside", |w| w.report.set_aside > 0);
        w.heal()
    })
}

/// No replica is asked for. A primary writes what no other node has, has it in its checkpoint, and is lost; when it comes back as a replica it
/// knows that the cluster does not have that, and needs a copy, which does not come. It goes on with what it has, and shows nothing of it.
pub fn the_copy_of_a_parted_node_does_not_come(seed: u64, loud: bool) -> Result<Report, String> {
    let mut world = calm(seed, loud);
    world.config.needed = 0;
    caught(world, |w| {
        w.all_follow();
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        w.net.cut = vec![0];
        let flushed = |w: &World| {
            let p = w.machines[0].primary();
            p.map_or(Position::ZERO, |p| p.flushed())
        };
        let cut_at = flushed(w);
        w.go("write alone", |w| flushed(w) > cut_at);
        w.on_node(0, |w, up| {
            if let Running::Primary(p) = up {
                w.checkpoint(0, p);
            }
        });
        w.crash(0);
        let (best, considered) = w.best_candidate(false).expect("the others are up");
        w.considered = considered;
        w.promote(best, true);
        w.net.cut.clear();
        w.go("set it aside", |w| w.report.set_aside > 0);
        let begun = w.report.bootstraps;
        w.go("begin a copy", |w| w.report.bootstraps > begun);
        w.net.cut = vec![0];
        w.go("go on without it", |w| {
            let back = w.machines[0].follower();
            back.is_some_and(|f| f.node.is_some())
        });
        let back = w.now;
        w.go("wait for a word", |w| w.now > back + 2 * FIRST_WORD);
        let shown = w.machines[0].follower().map(|f| f.shown());
        assert_eq!(shown, Some(None), "it shows what the cluster does not have");
        w.net.cut.clear();
        w.heal()
    })
}

/// No replica is asked for, and none is connected. A commit is in the primary's file and not synced when a replica comes: no memory has kept that
/// group, and the replica gets the commit all the same.
pub fn a_replica_comes_between_a_write_and_its_sync(
    seed: u64,
    loud: bool,
) -> Result<Report, String> {
    let mut world = calm(seed, loud);
    world.config.needed = 0;
    caught(world, |w| {
        w.all_follow();
        w.net.cut = vec![0];
        w.go("be alone", |w| !w.first().shipping().is_wanted());
        w.write_one();
        w.net.cut.clear();
        w.go("be followed", |w| {
            w.machines[0].primary().is_some_and(|p| p.joined() > 0)
        });
        w.syncing = true;
        w.heal()
    })
}

/// What a primary's disk forgets, and what its replicas can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    /// More than its anchor lets it.
    Anchored,
    /// What is newer than the anchor; its replicas can be asked.
    Newest,
    /// The same, and no replica can be asked before it has started.
    Alone,
}

/// One replica must have a commit. The primary's disk forgets commits that were acknowledged: the primary does not serve without them, and all
/// are there when a replica has taken over.
pub fn a_primary_forgets(seed: u64, loud: bool, what: Forgets) -> Result<Report, String> {
    let play = match what {
        Forgets::Anchored => |w: &mut World| w.forgets(Forgets::Anchored),
        Forgets::Newest => |w: &mut World| w.forgets(Forgets::Newest),
        Forgets::Alone => |w: &mut World| w.forgets(Forgets::Alone),
    };
    caught(calm(seed, loud), play)
}

/// A primary is cut off from its replicas, and something that may log in for replication and has not the cluster's secret acknowledges all that
/// it is sent. No commit counts that: those that were acknowledged are all there when another node leads.
pub fn a_stranger_acknowledges(seed: u64, loud: bool) -> Result<Report, String> {
    caught(calm(seed, loud), |w| {
        w.all_follow();
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        w.net.cut = vec![0];
        w.stranger(0);
        let cut_at = w.now;
        w.go("write alone", |w| w.now > cut_at + 300_000);
        assert_eq!(w.machines[0].primary().map(|p| p.is_sealing()), Some(false));
        w.crash(0);
        let (best, considered) = w.best_candidate(false).expect("the others are up");
        w.considered = considered;
        w.promote(best, true);
        w.net.cut.clear();
        w.heal()
    })
}

/// A node of the cluster says that it is ahead of the primary, and is not. The primary leads on; the node follows again when it has stopped lying.
pub fn a_node_says_that_it_is_ahead(seed: u64, loud: bool) -> Result<Report, String> {
    caught(calm(seed, loud), |w| {
        w.all_follow();
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        w.crash(1);
        env::fault::plant("ship.says_ahead", true);
        w.go("lie", |w| w.report.doubted > 0);
        env::fault::plant("ship.says_ahead", false);
        assert_eq!(w.machines[0].primary().map(|p| p.is_sealing()), Some(false));
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        w.heal()
    })
}

/// Transactions at a replica outlive the primary that kept their snapshots, and end when its successor keeps snapshots for others there, under the same
/// numbers. Those stay.
pub fn holds_outlive_their_primary(seed: u64, loud: bool) -> Result<Report, String> {
    const EACH: usize = 8;
    caught(calm(seed, loud), |w| {
        w.all_follow();
        let before = w.report.acknowledged;
        w.go("acknowledge", |w| w.report.acknowledged > before + 3);
        (1..=3).for_each(|i| w.hold_many(i, EACH));
        w.crash(0);
        let (best, considered) = w.best_candidate(false).expect("the others are up");
        w.considered = considered;
        w.promote(best, true);
        let i = (1..=3).find(|i| *i != best).expect("there are two more");
        w.redirect(i, best);
        w.go("follow", |w| {
            w.machines[i].follower().is_some_and(Follower::is_streaming)
        });
        // A node finds with its next request that nothing is kept for it any more.
        w.begin_holding(i);
        w.hold_many(i, EACH);
        let (_, lost) = w.kept_for(i);
        assert!(lost >= EACH, "{lost} transactions outlive their primary");
        w.hold_until(i, true, w.now);
        let ended = w.now;
        w.go("write", |w| w.now > ended + 300_000);
        w.hold_until(i, false, w.now);
        w.heal()
    })
}

/// One replica must have a commit, and nobody is wrong about what is down.
fn calm(seed: u64, loud: bool) -> World {
    let mut world = World::new(seed, loud);
    let c = &mut world.config;
    (c.needed, c.weak, c.sloppy, c.weather) = (1, false, false, Weather::CALM);
    (c.liar, c.forgets) = (None, 0);
    world.net.weather = Weather::CALM;
    world
}

impl World {
    /// Begins; nothing breaks but what a scenario breaks.
    fn all_follow(&mut self) {
        self.mending = true;
        self.begin();
        self.go("follow", |w| {
            w.machines[0].primary().is_some_and(|p| p.joined() == 3)
        });
    }

    /// The node that leads at first.
    fn first(&self) -> &Node {
        &self.machines[0].primary().expect("it leads").node
    }

    /// The first node's flusher writes a group of one commit, at the position behind what is synced, and does not sync any more.
    fn write_one(&mut self) {
        for _ in 0..MOST {
            self.syncing = false;
            let (flushed, before) = (self.first().marks().flushed.get(), self.report.commits);
            self.go("commit", |w| w.first().marks().installed.get() > flushed);
            let installed = self.first().marks().installed.get();
            if installed == flushed.next() && self.report.commits == before + 1 {
                self.on_node(0, |w, up| {
                    if let Running::Primary(p) = up {
                        w.append(0, p);
                    }
                });
                return;
            }
            self.syncing = true;
            self.go("sync", |w| {
                let marks = w.first().marks();
                marks.flushed.get() >= marks.installed.get()
            });
        }
        panic!("no group has one commit: {}", self.state());
    }

    /// Begins transactions at a node until so many have a snapshot that the primary keeps; they go on.
    fn hold_many(&mut self, i: usize, many: usize) {
        let far = self.now + 100_000_000;
        for _ in 0..2_000 {
            if self.kept_for(i).0 >= many {
                return;
            }
            self.begin_holding(i);
            (0..20).for_each(|_| self.step());
            self.hold_until(i, false, far);
            self.hold_until(i, true, far);
        }
        panic!("no snapshots are kept for node {i}: {}", self.state());
    }

    fn forgets(&mut self, what: Forgets) -> Report {
        self.config.liar = Some(0);
        self.all_follow();
        self.anchoring = what == Forgets::Anchored;
        let keep = self.machines[0].primary().expect("it leads").flushed();
        let before = self.report.acknowledged;
        self.go("acknowledge", |w| w.report.acknowledged > before + 5);
        if what == Forgets::Anchored {
            let p = self.machines[0].primary().expect("it leads");
            self.keep_anchor(p.node.dir());
        }
        self.writing = false;
        if what == Forgets::Alone {
            self.net.cut = vec![0];
        }
        self.crash(0);
        assert!(self.machines[0].forget_above(keep), "nothing above {keep}");
        match what {
            Forgets::Anchored => self.go("refuse", |w| w.report.short > 0),
            Forgets::Newest => self.go("refuse", |w| w.report.ahead_found > 0),
            Forgets::Alone => {
                self.go("start", |w| w.machines[0].primary().is_some());
                self.net.cut.clear();
                self.go("stop", |w| w.report.stopped > 0);
                let p = self.machines[0].primary().expect("it is there");
                assert_eq!(p.shown(), None, "it shows a history that has lost commits");
                self.machines[0].follows = Some(1);
                self.crash(0);
            }
        }
        let (best, considered) = self.best_candidate(false).expect("the replicas are up");
        self.considered = considered;
        self.promote(best, true);
        self.writing = true;
        self.anchoring = true;
        self.heal()
    }

    /// Steps until this holds, with nobody who mends.
    fn go(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..MOST {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("the scenario does not {what}: {}", self.state());
    }

    /// The operator looks at all that are up, and promotes the best by force; which is this one.
    fn take_over(&mut self, expected: usize) {
        let found = self.best_candidate(false);
        let (best, considered) = found.expect("somebody is up");
        assert_eq!(best, expected, "it has most: {}", self.state());
        self.considered = considered;
        self.promote(best, true);
    }
}
