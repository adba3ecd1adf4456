//! When this member stands for election, and what is known of leases at the time it is elected: the hands of [`Elections`] and of [`Ballots`].
//!
//! ```text
//! append comes in ──▶ noted ──▶ openraft                  vote is asked for ──▶ openraft ──▶ answer, with the time since an append came in last
//! no leader heard ──▶ Stand to all voters ──▶ a majority says yes ──▶ openraft stands
//! ```
//! openraft's own timers for elections are off. Its heartbeats are asked for here, as its own interval is also the time that it gives a message.
//!
//! Left out on purpose: the messages, which are the consensus'.

use super::types::Types;
use crate::catalogue::NodeId;
use crate::elections::{Elections, Step, Timing, goes_before};
use crate::leases::{Ballots, Before};
use crate::time::{sleep, timeout};
use env::{Clock, Env, Random};
use futures::stream::{FuturesUnordered, StreamExt};
use openraft::{EmptyNode, LogId, Raft, RaftMetrics};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Planted: a leader that is taken out takes itself out of the learners, too, and leads on meanwhile.
pub(super) const OUT_AT_ONCE: &str = "consensus.out_at_once";

/// How often a member looks whether it is to stand.
const LOOK: Duration = Duration::from_millis(50);

pub(super) type Last = Option<LogId<NodeId>>;
pub(super) type Metrics = RaftMetrics<NodeId, EmptyNode>;

/// What the others are asked: whether they would vote for this member.
pub(super) trait Others: Send + Sync + 'static {
    fn would_vote(&self, voter: NodeId, last: Last) -> impl Future<Output = bool> + Send;
    /// The last entry of the log here.
    fn last(&self) -> Last;
}

/// See the head of the file. Times are nanoseconds of `clock`.
pub(super) struct Campaign {
    me: NodeId,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    timing: Timing,
    elections: Mutex<Elections>,
    may_stand: AtomicBool,
    /// No lease was granted with this member's word after that. At the start nothing is known of the life before.
    took_part: AtomicU64,
    /// The term for which this member stood last, and what the votes have said.
    ballots: Mutex<(u64, Ballots)>,
    /// The leader that was heard last, and the one that was when this member stood last.
    leaders: Mutex<(Option<NodeId>, Option<NodeId>)>,
}

impl Campaign {
    pub(super) fn new(env: &Env, me: NodeId, timing: Timing) -> Campaign {
        let now = env.clock.boot_nanos();
        Campaign {
            me,
            clock: env.clock.clone(),
            random: env.random.clone(),
            timing,
            elections: Mutex::new(Elections::new(timing, now, env.random.next_u64())),
            may_stand: AtomicBool::new(true),
            took_part: AtomicU64::new(now),
            ballots: Mutex::new((0, Ballots::new(now))),
            leaders: Mutex::default(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.boot_nanos()
    }

    fn draw(&self) -> u64 {
        self.random.next_u64()
    }

    pub(super) fn may_stand(&self, may: bool) {
        self.may_stand.store(may, Ordering::SeqCst);
        // The primary could not reach this member for a while, whatever leader it followed.
        self.leaders.lock().1 = None;
    }

    /// This member's word may be part of a lease that is granted: a leader's message has come in, or a request at the leader. Called before it is taken
    /// up, so that a vote that is given after it knows of it.
    pub(super) fn takes_part(&self) {
        self.took_part.fetch_max(self.now(), Ordering::SeqCst);
    }

    /// Nanoseconds since this member may have taken part last. Called after a vote was given: what comes in later for an earlier leader is refused.
    pub(super) fn age(&self) -> u64 {
        let last = self.took_part.load(Ordering::SeqCst);
        self.now().saturating_sub(last)
    }

    /// A leader's message was taken.
    pub(super) fn heard(&self, leader: NodeId) {
        self.leaders.lock().0 = Some(leader);
        self.elections.lock().heard(self.now(), self.draw());
    }

    /// Another member asks whether it would get this vote, or has got it. `first`: it goes before this one.
    pub(super) fn another(&self, first: bool) -> bool {
        self.elections
            .lock()
            .another(self.now(), first, self.draw())
    }

    /// A vote for this member in this term has come, `age` after that voter took part in a lease last.
    pub(super) fn has_vote(&self, term: u64, age: u64) {
        let now = self.now();
        let mut ballots = self.ballots.lock();
        if ballots.0 < term {
            *ballots = (term, Ballots::new(self.took_part.load(Ordering::SeqCst)));
        }
        if ballots.0 == term {
            ballots.1.vote(now, age);
        }
    }

    /// What is known of earlier leases by the leader of this term. `alone`: no other member votes.
    pub(super) fn before(&self, term: u64, alone: bool) -> Before {
        let own = self.took_part.load(Ordering::SeqCst);
        let ballots = self.ballots.lock();
        let granted = match ballots.0 == term {
            true => ballots.1.latest().max(own),
            false if alone => own,
            // Elected alone, and others vote by now.
            false => self.now(),
        };
        Before {
            granted,
            replaced: self.leaders.lock().1,
        }
    }

    /// Stands when it is time to, and beats while this member leads; until the consensus ends here.
    pub(super) async fn run(self: Arc<Campaign>, raft: Raft<Types>, others: Arc<impl Others>) {
        let mut beaten = 0;
        while self.look(&raft, &others, &mut beaten).await {
            sleep(LOOK).await;
        }
    }

    /// One look at what is to be done. `beaten`: when this member beat last. False: the consensus has ended here.
    async fn look(&self, raft: &Raft<Types>, others: &Arc<impl Others>, beaten: &mut u64) -> bool {
        let metrics: Metrics = raft.metrics().borrow().clone();
        let now = self.now();
        if metrics.running_state.is_err() {
            return false;
        }
        let voters = metrics.membership_config.membership().get_joint_config();
        let votes = voters.iter().any(|v| v.contains(&self.me));
        if metrics.state.is_leader() {
            self.heard(self.me);
            // One that cannot be reached grants no lease, and one that was taken out leads no more. Should that last, the others are to miss it.
            let reached = self.may_stand.load(Ordering::SeqCst);
            let leads = reached && !is_taken_out(&metrics, self.me);
            if leads && now.saturating_sub(*beaten) >= self.timing.heartbeat * 1_000_000 {
                *beaten = now;
                // An error is a consensus that has ended, which the next look sees.
                _ = raft.trigger().heartbeat().await;
            }
            return true;
        }
        if !votes || !self.may_stand.load(Ordering::SeqCst) {
            self.elections.lock().heard(now, self.draw());
            return true;
        }
        let alone = voters.iter().all(|v| v.len() == 1);
        let step = self.elections.lock().tick(now, alone);
        if step == Step::Wait {
            return true;
        }
        let stands = self.majority_would_vote(voters, others).await;
        if stands {
            let mut leaders = self.leaders.lock();
            leaders.1 = leaders.0;
        }
        self.elections.lock().asked(self.now(), stands, self.draw());
        if stands {
            _ = raft.trigger().elect().await;
        }
        true
    }

    /// Whether a majority, of the old voters and of the new ones, would vote for this member.
    async fn majority_would_vote(
        &self,
        voters: &[BTreeSet<NodeId>],
        others: &Arc<impl Others>,
    ) -> bool {
        let all: BTreeSet<NodeId> = voters.iter().flatten().copied().collect();
        let last = others.last();
        let mut yes = BTreeSet::from([self.me]);
        let is_majority = |yes: &BTreeSet<NodeId>| {
            let mut sets = voters.iter();
            sets.all(|v| 2 * v.intersection(yes).count() > v.len())
        };
        let ask = |voter| async move { (voter, others.would_vote(voter, last).await) };
        let asked = all.into_iter().filter(|v| *v != self.me).map(ask);
        let mut asked: FuturesUnordered<_> = asked.collect();
        let answered = timeout(Duration::from_millis(self.timing.patience / 2), async {
            while !is_majority(&yes) {
                match asked.next().await {
                    Some((voter, true)) => _ = yes.insert(voter),
                    Some(_) => {}
                    None => return false,
                }
            }
            true
        });
        answered.await.unwrap_or(false)
    }

    /// Whether this member would vote for one with such a log. `leads`: this one leads the consensus, as far as it knows.
    pub(super) fn would_vote(&self, candidate: NodeId, last: Last, own: Last, leads: bool) -> bool {
        let first = goes_before((last, candidate), (own, self.me));
        !leads && last >= own && self.another(first)
    }
}

/// Whether the members have agreed on voters without this one. openraft goes on to take it for the leader that it was.
pub(super) fn is_taken_out(metrics: &Metrics, me: NodeId) -> bool {
    let voters = &metrics.membership_config;
    let votes = voters.membership().voter_ids().any(|id| id == me);
    let agreed = voters.log_id().is_some() && *voters.log_id() <= metrics.last_applied;
    !votes && agreed && !env::fault::planted(OUT_AT_ONCE)
}
