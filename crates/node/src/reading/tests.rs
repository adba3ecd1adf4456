//! Reads through changes of their node's role, and through fetches that land, are lost, or do not bring what is missing.

use super::*;
use base::Consistency;
use base::region::Region;
use std::time::Duration;

const CLUSTER: u128 = 7;
const TERM: u64 = 3;
const TABLE: base::RelId = 20_000;

fn p(n: u64) -> Position {
    Position::from_u64(n)
}

fn want(policy: ReadPolicy) -> ReadWant {
    ReadWant {
        consistency: Consistency::Strong,
        policy,
        arrived: 100,
    }
}

fn node(role: Role, leads_after: Option<Position>, visible: u64) -> NodeView {
    NodeView {
        role,
        leads_after,
        visible: p(visible),
    }
}

/// A primary that has published this much.
fn primary(published: u64) -> Region {
    let region = Region::default();
    region.lead(CLUSTER, TERM, p(1), || p(published));
    region
}

/// Everything that is to be fetched at this time comes back.
fn fetch(t: &mut Timestamps, from: &Region, now: u64) -> usize {
    let all = t.begin(now);
    for f in &all {
        let mut values = Vec::new();
        from.read(&f.words, &mut values).expect("words of a region");
        t.landed(f.number, &values, TERM).expect("it is of use");
    }
    all.len()
}

fn touches() -> Vec<Touch> {
    vec![Touch::Table(TABLE)]
}

#[test]
fn a_read_that_asks_for_little_is_placed_wherever_it_is() {
    let shown = Shown::default();
    let roles = [
        node(Role::Replica, None, 5),
        node(Role::Sealed, None, 5),
        node(Role::Primary, Some(p(9)), 5),
    ];
    for consistency in [Consistency::Session, Consistency::Eventual] {
        let placing = Placing::new(ReadWant {
            consistency,
            ..want(ReadPolicy::Tracker)
        });
        let places = roles.map(|n| placing.begin(&n, &shown, || None));
        assert_eq!(places, [Place::Newest; 3]);
    }
    for policy in [ReadPolicy::Stale, ReadPolicy::CommitWait] {
        let places = roles.map(|n| Placing::new(want(policy)).begin(&n, &shown, || None));
        assert_eq!(
            places,
            [Place::Newest, Place::HandedOver, Place::Leads(p(9))]
        );
    }
}

#[test]
fn a_read_in_the_middle_of_a_change_of_role_asks_again() {
    let shown = Shown::default();
    for policy in [
        ReadPolicy::Tracker,
        ReadPolicy::Lamport,
        ReadPolicy::ReadWait,
    ] {
        let mut t = Timestamps::new(CLUSTER);
        let mut placing = Placing::new(want(policy));
        let follows = node(Role::Replica, None, 5);
        let first = Place::Fetch { first: true };
        assert_eq!(placing.begin(&follows, &shown, || None), first);
        assert_eq!(placing.ask(&follows, None, &mut t, touches), first);
        // What has come meanwhile is the old primary's.
        fetch(&mut t, &primary(40), 200);
        let promoted = node(Role::Primary, Some(p(41)), 30);
        let leads = placing.ask(&promoted, Some(p(40)), &mut t, touches);
        assert_eq!(leads, Place::Leads(p(41)));
        assert_eq!(
            placing.begin(&promoted, &shown, || None),
            Place::Leads(p(41))
        );
        let leads = node(Role::Primary, None, 41);
        assert_eq!(placing.begin(&leads, &shown, || None), Place::Newest);
        let sealed = node(Role::Sealed, None, 41);
        let refused = placing.ask(&sealed, None, &mut t, touches);
        assert_eq!(refused, Place::HandedOver);
    }
}

#[test]
fn a_timestamp_is_shared_and_one_of_its_own_is_not() {
    let follows = node(Role::Replica, None, 5);
    let mut t = Timestamps::new(CLUSTER);
    let mut shared = [0, 1].map(|_| Placing::new(want(ReadPolicy::Tracker)));
    let mut alone = [0, 1].map(|_| Placing::new(want(ReadPolicy::ReadWait)));
    let firsts = shared
        .each_mut()
        .map(|r| r.ask(&follows, None, &mut t, touches));
    assert_eq!(firsts, [true, false].map(|first| Place::Fetch { first }));
    for r in &mut alone {
        assert_eq!(
            r.ask(&follows, None, &mut t, touches),
            Place::Fetch { first: true }
        );
    }
    alone[1].give_up(&mut t);
    assert_eq!(fetch(&mut t, &primary(40), 200), 2, "one for all, and one");
    let at = Place::At(p(40));
    for r in shared.iter_mut().chain(&mut alone[..1]) {
        assert_eq!(r.ask(&follows, None, &mut t, touches), at);
    }
    // A fetch that was lost is begun again.
    let mut lost = Placing::new(want(ReadPolicy::ReadWait));
    lost.ask(&follows, None, &mut t, touches);
    t.lost();
    assert_eq!(
        lost.ask(&follows, None, &mut t, touches),
        Place::Fetch { first: true }
    );
}

#[test]
fn a_read_that_may_be_old_takes_what_is_shown_and_else_what_a_fetch_named() {
    let (shown, follows) = (Shown::default(), node(Role::Replica, None, 30));
    let second = 1_000_000_000;
    let bounded = |arrived| {
        Placing::new(ReadWant {
            consistency: Consistency::Bounded(Duration::from_secs(1)),
            policy: ReadPolicy::Tracker,
            arrived,
        })
    };
    let nothing = bounded(3 * second).begin(&follows, &shown, || None);
    assert_eq!(nothing, Place::Fetch { first: true });
    shown.told(TERM, p(30), 2 * second, p(30));
    let enough = bounded(3 * second).begin(&follows, &shown, || None);
    assert_eq!(enough, Place::Newest);
    shown.told(TERM, p(40), 4 * second, p(30));
    let named = bounded(4 * second).begin(&follows, &shown, || None);
    assert_eq!(named, Place::At(p(40)));
}

#[test]
fn a_read_waits_for_what_it_reads_and_without_slots_for_everything() {
    let follows = node(Role::Replica, None, 30);
    let mut t = Timestamps::new(CLUSTER);
    let tracker = want(ReadPolicy::Tracker);
    let mut placing = Placing::new(tracker);
    placing.ask(&follows, None, &mut t, touches);
    let region = primary(40);
    fetch(&mut t, &region, 200);
    let mut check = Checking::new(&tracker, p(40), touches);
    assert!(!check.is_shown(&follows));
    // Nothing was changed since the primary began.
    assert!(matches!(check.step(&follows, None, &mut t), May::Read(_)));
    let mut all = Checking::new(&want(ReadPolicy::Lamport), p(40), touches);
    let wait = May::Wait(p(40), Level::Visible);
    assert_eq!(all.step(&follows, None, &mut t), wait);
    let arrived = node(Role::Replica, None, 40);
    assert_eq!(all.step(&arrived, None, &mut t), May::Read(Level::Visible));
    // Promoted meanwhile: nothing is fetched any more.
    let promoted = node(Role::Primary, Some(p(41)), 30);
    assert_eq!(check.step(&promoted, None, &mut t), wait);
    // Slots that do not come are asked for again and again, later without hurry.
    let mut missing = Checking::new(&tracker, p(50), touches);
    let steps: Vec<May> = (0..4)
        .map(|n| {
            let step = missing.step(&follows, None, &mut t);
            fetch(&mut t, &region, 300 + n);
            step
        })
        .collect();
    let idle = [false, false, true, true];
    assert_eq!(steps, idle.map(|idle| May::Fetch { idle }));
}
