//! How long groups may gather for a replica that is far, before they leave together. A decider: it has no clock.
//!
//! ```text
//! round trip      gathers at most        so that what nothing waits for is late by
//! below 8 ms      not at all             nothing
//! R               R / 16, at most 10 ms  a sixteenth of what the distance costs anyway
//! ```
//! A group by itself costs a wake-up at each stage of its way: the connections of both nodes, replay, the replica's own log. Where many nodes commit,
//! most groups at a replica are those of others. Groups that leave together cost one.
//!
//! The round trip is the least that an acknowledgement of this connection took. A replica that acknowledges now and then takes longer with most of
//! them, so the least is near to it. A path that has become longer counts as it was, which gathers less.
//!
//! Left out on purpose: what is waited for, which the owner knows and sends at once.

/// Microseconds of a round trip below which nothing gathers.
const NEAR: i64 = 8_000;
/// A group is late by this part of the round trip at most, ...
const PART: i64 = 16;
/// ... and by so many microseconds.
const MOST: i64 = 10_000;

/// See the head of the file. Times are microseconds: of the civil clock in [`Gather::acked`], else of one that only grows.
#[derive(Debug, Default)]
pub struct Gather {
    round_trip: Option<i64>,
    /// When the first that gathers is to leave.
    until: Option<i64>,
}

impl Gather {
    /// An acknowledgement came at this time, and brings back when what it answers was sent.
    pub fn acked(&mut self, echo: i64, now: i64) {
        // Without an echo it says nothing of the distance, and clocks may be set back.
        if echo > 0 && now > echo {
            let took = now - echo;
            self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
        }
    }

    /// Something is there that nothing waits for. When it is to leave; none: now.
    pub fn comes(&mut self, now: i64) -> Option<i64> {
        let far = self.round_trip.filter(|r| *r >= NEAR)?;
        let until = *self.until.get_or_insert(now + (far / PART).min(MOST));
        (until > now).then_some(until)
    }

    /// When what gathers is to leave; none: nothing does.
    pub fn until(&self) -> Option<i64> {
        self.until
    }

    /// All that was there has left.
    pub fn left(&mut self) {
        self.until = None;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn far(round_trip: i64) -> Gather {
        let mut g = Gather::default();
        g.acked(1_000_000, 1_000_000 + round_trip);
        g
    }

    #[test]
    fn what_comes_first_says_when_all_of_it_leaves() {
        let mut g = far(32_000);
        assert_eq!(g.comes(100), Some(2_100));
        assert_eq!(g.comes(1_900), Some(2_100), "it is not put off");
        assert_eq!(g.until(), Some(2_100));
        assert_eq!(g.comes(2_100), None, "it is time");
        g.left();
        assert_eq!((g.until(), g.comes(5_000)), (None, Some(7_000)));
        assert_eq!(far(900_000).comes(0), Some(MOST));
    }

    #[test]
    fn nothing_gathers_for_one_that_is_near_or_not_known() {
        assert_eq!(Gather::default().comes(0), None);
        assert_eq!(far(NEAR - 1).comes(0), None);
        let mut g = far(64_000);
        // The next is quicker: it was not asked to acknowledge at once before.
        g.acked(2_000_000, 2_001_000);
        assert_eq!(g.comes(0), None);
        // No echo, or a clock that was set back.
        let mut g = Gather::default();
        g.acked(0, 9_000_000);
        g.acked(9_000_000, 1);
        assert_eq!(g.comes(0), None);
    }
}
