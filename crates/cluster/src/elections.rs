//! When a member stands for election: the decider of one voter.
//!
//! ```text
//! no word of the leader for `silence` --> ask the others --> a majority hears no leader either, and has no more --> stand
//! ```
//! **A majority decides that the leader is gone.** A member asks before it stands, and stands only if a majority has heard no leader for [`Timing::quiet`]. So a
//! member that was stopped, or that alone is cut off, disturbs no leader that the others hear. That is why the silence may be short.
//!
//! **Only time that this member was awake counts as silence.** A member that was stopped itself, as all are on a machine that is suspended, gives the leader a
//! moment to be heard first. On a machine with more work than it can do the members become patient by the same rule.
//!
//! **Two that ask at the same time.** The one with the longer log goes first, of equal ones the one with the higher number; the other one
//! waits. Times are drawn anew for each try.
//!
//! Safety is the consensus' alone: whatever is decided here, a term has one leader.
//!
//! Left out on purpose: votes. openraft counts them, and its own timers are off.

use crate::catalogue::NodeId;
use crate::leases::Terms;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often the leader is heard at least.
    pub heartbeat: u64,
    /// How long a message of the consensus may take.
    pub patience: u64,
    /// A voter that has heard a leader within this time votes for no other one.
    pub quiet: u64,
    /// A voter that has heard no leader for so long asks the others, up to a fourth later.
    pub silence: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: 125,
            patience: 500,
            quiet: 600,
            silence: 900,
        }
    }
}

impl Timing {
    /// As fits leases of this length: a shorter one is of use only where a lost consensus leader is missed as soon. Safety does not depend on it.
    pub fn for_leases(length: Duration) -> Timing {
        let usual = Timing::default();
        let of = Terms::default().length.as_millis();
        let scaled = |ms: u64| (u128::from(ms) * length.as_millis() / of) as u64;
        Timing {
            heartbeat: scaled(usual.heartbeat),
            patience: scaled(usual.patience),
            quiet: scaled(usual.quiet),
            silence: scaled(usual.silence),
        }
    }
}

/// The longest time between two looks that counts as time awake, in nanoseconds.
const AWAKE: u64 = 200 * MS;

/// What this member does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    /// Ask the other voters whether they would vote for this member.
    Ask,
}

/// See the head of the file. Times are nanoseconds of the member's own clock; `draw` is any number, drawn anew for each call.
#[derive(Clone, Debug)]
pub struct Elections {
    timing: Timing,
    looked: u64,
    /// Time awake since a leader was heard.
    silent: u64,
    /// How long the silence has to be until the others are asked.
    until: u64,
    /// The others are being asked.
    asks: bool,
    /// This member has stood since a leader was heard.
    stood: bool,
}

impl Elections {
    /// A member that starts now.
    pub fn new(timing: Timing, now: u64, draw: u64) -> Elections {
        let mut elections = Elections {
            timing,
            looked: now,
            silent: 0,
            until: 0,
            asks: false,
            stood: false,
        };
        elections.heard(now, draw);
        elections
    }

    /// A leader was heard.
    pub fn heard(&mut self, now: u64, draw: u64) {
        self.looked = now;
        self.silent = 0;
        self.stood = false;
        self.until = self.timing.silence * MS + self.drawn(draw);
    }

    /// What to do now; called about every 50 ms. `alone`: no other member votes.
    pub fn tick(&mut self, now: u64, alone: bool) -> Step {
        self.look(now);
        let due = self.silent >= self.until || (alone && !self.stood);
        match due && !self.asks {
            true => {
                self.asks = true;
                Step::Ask
            }
            false => Step::Wait,
        }
    }

    /// The others were asked, and this member stands or does not. It asks again later, unless a leader is heard.
    pub fn asked(&mut self, now: u64, stands: bool, draw: u64) {
        self.look(now);
        self.asks = false;
        self.stood |= stands;
        let pause = match stands {
            true => self.timing.quiet / 2,
            false => self.timing.heartbeat,
        };
        self.until = self.silent + pause * MS + self.drawn(draw);
    }

    /// Another member asks, or stands. `first`: it goes before this one. Whether this one would vote for it.
    pub fn another(&mut self, now: u64, first: bool, draw: u64) -> bool {
        self.look(now);
        let quiet = self.silent >= self.timing.quiet * MS;
        if !quiet || (self.asks && !first) {
            return false;
        }
        let pause = self.timing.quiet / 2 * MS + self.drawn(draw);
        self.until = self.until.max(self.silent + pause);
        true
    }

    fn look(&mut self, now: u64) {
        self.silent += now.saturating_sub(self.looked).min(AWAKE);
        self.looked = self.looked.max(now);
    }

    /// Up to a fourth of the silence.
    fn drawn(&self, draw: u64) -> u64 {
        draw % (self.timing.silence * MS / 4).max(1)
    }
}

/// Of two members that ask at the same time, the one with the longer log goes first. Of equal logs, the member with the higher number does.
pub fn goes_before<L: Ord>(one: (L, NodeId), other: (L, NodeId)) -> bool {
    one > other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(elections: &mut Elections, from: u64, ms: u64) -> Option<u64> {
        (0..=ms / 50)
            .map(|i| from + i * 50)
            .find(|at| elections.tick(at * MS, false) == Step::Ask)
    }

    #[test]
    fn a_silent_leader_is_asked_about_and_one_that_is_heard_is_not() {
        let mut e = Elections::new(Timing::default(), 0, 0);
        for heard in [500, 1000, 1500] {
            assert_eq!(after(&mut e, heard - 450, 400), None);
            e.heard(heard * MS, 0);
        }
        assert_eq!(after(&mut e, 1550, 2000), Some(2400));
        // Once until the answers are there.
        assert_eq!(after(&mut e, 2450, 2000), None);
        e.asked(4450 * MS, false, 0);
        assert_eq!(after(&mut e, 4500, 1000), Some(4600));
    }

    #[test]
    fn times_shrink_with_the_lease() {
        let half = Timing::for_leases(Duration::from_millis(750));
        assert_eq!((half.quiet, half.silence, half.patience), (300, 450, 250));
        let mut e = Elections::new(half, 0, 0);
        assert_eq!(after(&mut e, 50, 1000), Some(450));
    }

    #[test]
    fn time_that_this_member_was_stopped_is_no_silence() {
        let mut e = Elections::new(Timing::default(), 0, 0);
        assert_eq!(after(&mut e, 50, 450), None);
        // Stopped for a minute: it goes on where it was.
        assert_eq!(after(&mut e, 60_000, 2000), Some(60_200));
    }

    #[test]
    fn a_member_that_hears_its_leader_votes_for_no_other() {
        let mut e = Elections::new(Timing::default(), 0, 0);
        assert_eq!(after(&mut e, 50, 450), None);
        assert!(!e.another(550 * MS, true, 0));
        assert_eq!(after(&mut e, 550, 50), None);
        assert!(e.another(650 * MS, true, 0));
        // It gives the other one time to be elected.
        assert_eq!(after(&mut e, 700, 200), None);
    }

    #[test]
    fn of_two_that_ask_one_goes_first() {
        let pair = || Elections::new(Timing::default(), 0, 0);
        let (mut a, mut b) = (pair(), pair());
        assert_eq!(after(&mut a, 50, 1000), Some(900));
        assert_eq!(after(&mut b, 50, 1000), Some(900));
        let (log_a, log_b) = ((7, 1), (7, 2));
        assert!(!b.another(910 * MS, goes_before(log_a, log_b), 0));
        assert!(a.another(910 * MS, goes_before(log_b, log_a), 0));
    }

    #[test]
    fn the_only_voter_waits_for_nothing() {
        let mut e = Elections::new(Timing::default(), 0, 0);
        assert_eq!(e.tick(0, true), Step::Ask);
        e.asked(0, true, 0);
        assert_eq!(e.tick(50 * MS, true), Step::Wait, "once");
    }
}
