//! Read leases (`replica::lease`): clocks that drift, and machines that stand still for a while, as under SIGSTOP or while they are suspended.
//!
//! A machine that stands still gets nothing that was sent to it, and its threads make no step; all of it comes when it goes on. So a grant of a lease may be
//! taken long after it was sent, and a read may stop between the look at its lease and its answer. Clients of a machine that stands still do nothing.
//!
//! The clocks by which leases are counted run at most a tenth apart. The rest of a node goes by the simulation's own time.
//!
//! Left out on purpose: clocks that run further apart, which the promise does not cover.

use env::{Clock, ManualClock};
use std::sync::Arc;
use std::time::Duration;

use crate::world::{NODES, What, World};

/// Longest that a machine stands still, in microseconds: longer than a lease.
const LONGEST: u64 = 400_000;

/// A clock whose lease time runs at its own pace: in thousandths.
struct Drifting {
    clock: Arc<ManualClock>,
    pace: u64,
}

impl Clock for Drifting {
    fn monotonic_nanos(&self) -> u64 {
        self.clock.monotonic_nanos()
    }

    fn boot_nanos(&self) -> u64 {
        // It was booted a day ago.
        86_400_000_000_000 + self.clock.monotonic_nanos() / 1000 * self.pace
    }

    fn unix_micros(&self) -> i64 {
        self.clock.unix_micros()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
    }
}

impl World {
    /// Nodes lend, before anything of them has begun.
    pub fn lend(&mut self) {
        self.config.leases = true;
        // A part of them is put off by machines that stand still.
        self.config.events = 6_000;
        for m in &mut self.machines {
            let pace = 956 + self.lease_dice.below(89);
            let clock = self.clock.clone();
            m.env.clock = Arc::new(Drifting { clock, pace });
        }
    }

    /// Whether a machine stands still.
    pub fn stands_still(&self, i: usize) -> bool {
        self.still[i] > self.now
    }

    /// One machine stands still for a while, now and then.
    pub fn stand_still(&mut self) {
        if !self.config.leases || !self.lease_dice.percent(60) {
            return;
        }
        let i = self.lease_dice.below(NODES as u64) as usize;
        let pause = 1_000 + self.lease_dice.below(LONGEST);
        self.still[i] = self.now + pause;
        self.say(|| format!("node {i} stands still for {pause} us"));
        self.report.pauses += 1;
    }

    /// What happens now; none: its machine stands still, and it happens when that goes on.
    pub fn when_it_moves(&mut self, what: What) -> Option<What> {
        let node = match &what {
            What::Work(i, _)
            | What::Time(i, _)
            | What::Connect(i, ..)
            | What::Promote(i, _)
            | What::Answer(i, ..)
            | What::Ask(_, _, i, _) => Some(*i),
            What::Deliver(c, to_primary, _) | What::Broken(c, to_primary) => {
                let c = &self.net.connections[*c];
                Some(if *to_primary { c.primary } else { c.replica })
            }
            _ => None,
        };
        match node.filter(|i| self.stands_still(*i)) {
            None => Some(what),
            Some(i) => {
                self.later(self.still[i] - self.now, what);
                None
            }
        }
    }
}
