//! Arrivals, answers and losses in orders that are written out.

use super::*;
use base::record::{CommitBuilder, RecordKind};
use base::region::{Region, row_hash};

const CLUSTER: u128 = 0xca;

fn p(n: u64) -> Position {
    Position::from_u64(n)
}

/// A primary of term 3 that has published this.
fn primary(at: u64) -> Region {
    let r = Region::default();
    r.lead(CLUSTER, 3, Position::ZERO, || Position::ZERO);
    r.publish(p(at));
    r
}

fn write(r: &Region, at: u64, table: u32, key: &[u8]) {
    let mut b = CommitBuilder::new();
    b.push(RecordKind::Put, table, key, b"");
    r.modified(&b.finish(p(at), 0).0);
    r.publish(p(at));
}

fn read(r: &Region, f: &Fetch) -> Vec<u64> {
    let mut values = Vec::new();
    r.read(&f.words, &mut values).unwrap();
    values
}

fn land(t: &mut Timestamps, r: &Region, f: &Fetch) {
    t.landed(f.number, &read(r, f), 3).unwrap();
}

fn ask(t: &mut Timestamps, arrived: u64) -> Ask {
    t.ask(arrived, Vec::new)
}

/// The fetch that begins now, if one does.
fn next(t: &mut Timestamps, now: u64) -> Option<Fetch> {
    let mut all = t.begin(now);
    assert!(all.len() < 2, "{all:?}");
    all.pop()
}

/// The fetch for one who asks.
fn begun(t: &mut Timestamps, arrived: u64, now: u64) -> Fetch {
    assert_eq!(ask(t, arrived), Ask::First);
    next(t, now).expect("a fetch begins")
}

#[test]
fn a_timestamp_serves_who_arrived_before_its_fetch_began() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
    let first = begun(&mut t, 5, 10);
    assert_eq!(ask(&mut t, 9), Ask::Joined);
    assert_eq!(ask(&mut t, 10), Ask::Joined);
    assert!(!t.is_due());
    // They arrived after the fetch began.
    assert_eq!(ask(&mut t, 13), Ask::First);
    assert_eq!(ask(&mut t, 12), Ask::Joined);
    assert_eq!(next(&mut t, 14), None, "one is in flight");
    assert!(t.is_due());
    r.publish(p(41));
    land(&mut t, &r, &first);
    assert_eq!(ask(&mut t, 10), Ask::Known(p(41)));
    assert_eq!(ask(&mut t, 11), Ask::Joined);
    // All who waited for a place go with one.
    let second = next(&mut t, 21).expect("somebody waits for it");
    assert_eq!(ask(&mut t, 21), Ask::Joined);
    land(&mut t, &r, &second);
    assert_eq!(ask(&mut t, 21), Ask::Known(p(41)));
    assert_eq!(next(&mut t, 22), None);
    assert_eq!(t.landed(second.number, &[], 3), Err(Rejected::Unknown));
}

/// With slots for one in flight, and the timestamp of another: what lands late does not take back what the later brought.
#[test]
fn fetches_land_in_any_order() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
    let early = begun(&mut t, 5, 6);
    let values = read(&r, &early);
    r.publish(p(41));
    assert_eq!(t.check(p(40), p(5), &[Touch::Table(1)]), Check::Missing);
    let late = next(&mut t, 8).expect("slots are missing");
    assert_eq!(ask(&mut t, 8), Ask::Joined);
    land(&mut t, &r, &late);
    assert_eq!(t.landed(early.number, &values, 3), Ok(p(40)));
    assert_eq!(ask(&mut t, 5), Ask::Known(p(41)));
}

#[test]
fn hundreds_of_reads_share_one_round_trip() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
    let first = begun(&mut t, 10, 10);
    // Who arrived by then goes with it; who comes while it is under way goes with the second, whatever their number.
    for read in 0..500 {
        assert_eq!(ask(&mut t, read % 11), Ask::Joined, "{read}");
    }
    assert_eq!(ask(&mut t, 11), Ask::First);
    for read in 0..500 {
        assert_eq!(ask(&mut t, 11 + read), Ask::Joined, "{read}");
    }
    assert_eq!(next(&mut t, 600), None, "one is in flight");
    land(&mut t, &r, &first);
    let second = next(&mut t, 1001).expect("for all who wait for a place");
    for read in 0..500 {
        assert_eq!(ask(&mut t, read % 11), Ask::Known(p(40)), "{read}");
        assert_eq!(ask(&mut t, 11 + read), Ask::Joined, "{read}");
    }
    // 1,002 reads have their timestamps from two fetches, and nobody waits for a third.
    land(&mut t, &r, &second);
    assert_eq!(ask(&mut t, 510), Ask::Known(p(40)));
    assert_eq!(next(&mut t, 1002), None);
}

#[test]
fn nobody_shares_a_fetch_of_ones_own() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
    let numbers: Vec<_> = (0..5).map(|_| t.ask_alone()).collect();
    let all = t.begin(10);
    assert_eq!(all.len(), 5);
    let shared = begun(&mut t, 1, 11);
    assert_eq!(t.take_alone(numbers[0]), None);
    all.iter().for_each(|f| land(&mut t, &r, f));
    assert_eq!(ask(&mut t, 1), Ask::Joined);
    assert_eq!(t.take_alone(numbers[0]), Some(Ok(p(40))));
    assert_eq!(t.take_alone(numbers[0]), Some(Err(())));
    t.lost();
    assert_eq!(t.take_alone(numbers[1]), Some(Err(())));
    assert_eq!(t.landed(shared.number, &[], 3), Err(Rejected::Unknown));
}

/// The primary is away: reads come, give up, and others come. Nothing of them stays.
#[test]
fn who_waits_in_vain_leaves_nothing() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(40));
    for n in 0..100_000 {
        let row = |key: u64| Touch::Row(2, row_hash(2, &key.to_be_bytes()));
        t.ask(n, || (0..3).map(|k| row(3 * n + k)).collect());
        assert_eq!(t.check(p(9), p(5), &[row(n)]), Check::Missing);
        let number = t.ask_alone();
        t.forget(number);
    }
    assert!(t.wanted.len() <= MOST_WANTED && t.alone.is_empty() && t.waiting.is_empty());
    let all = t.begin(100_000);
    assert_eq!(all.len(), 1, "one fetch for all of them");
    assert_eq!(all[0].words.len(), MOST_WORDS);
    // One that is given up when its fetch is on its way.
    let number = t.ask_alone();
    let alone = next(&mut t, 100_001).expect("its own");
    t.forget(number);
    land(&mut t, &r, &alone);
    assert!(t.alone.is_empty());
    assert_eq!(t.take_alone(number), Some(Err(())));
}

#[test]
fn answers_of_others_and_of_other_terms_are_rejected() {
    let mut t = Timestamps::new(CLUSTER);
    let mut rejected = |r: &Region, followed| {
        let f = begun(&mut t, 50, 50);
        t.landed(f.number, &read(r, &f), followed).unwrap_err()
    };
    let r = primary(40);
    let term = |theirs, followed| Rejected::Term { theirs, followed };
    assert_eq!(rejected(&r, 4), term(3, 4));
    assert_eq!(rejected(&r, 2), term(3, 2));
    r.resign();
    assert_eq!(rejected(&r, 3), Rejected::NotPrimary);
    let other = Region::default();
    other.lead(7, 3, p(1), || p(1));
    assert_eq!(rejected(&other, 3), Rejected::Cluster(7));
    // It ceased to be the primary while the words were read.
    let f = begun(&mut t, 50, 50);
    let mut values = read(&primary(40), &f);
    *values.last_mut().unwrap() = 0;
    assert_eq!(t.landed(f.number, &values, 3), Err(Rejected::NotPrimary));
    let number = t.ask_alone();
    let f = next(&mut t, 50).expect("its own");
    assert_eq!(t.landed(f.number, &[3], 3), Err(Rejected::Malformed));
    assert_eq!(t.take_alone(number), Some(Err(())));
    assert_eq!(ask(&mut t, 50), Ask::First);
}

/// The fetch for slots that are missing.
fn fetched(t: &mut Timestamps, at: u64, visible: u64, touches: &[Touch]) -> Fetch {
    assert_eq!(t.check(p(at), p(visible), touches), Check::Missing);
    next(t, 3).expect("slots are missing")
}

#[test]
fn what_has_not_changed_is_read_at_once_and_what_has_is_waited_for() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
    write(&r, 10, 1, b"a");
    write(&r, 20, 2, b"b");
    write(&r, 30, 2, b"c");
    let at = p(30);
    let first = begun(&mut t, 1, 2);
    land(&mut t, &r, &first);
    let row = |key: &[u8]| Touch::Row(2, row_hash(2, key));
    assert_eq!(t.check(at, at, &[Touch::All]), Check::Read(Level::Visible));
    assert_eq!(
        t.check(at, p(10), &[Touch::All]),
        Check::Wait(at, Level::Visible)
    );
    // All slots in one fetch.
    let touches = [Touch::Catalog, Touch::Table(1), row(b"b"), row(b"x")];
    let f = fetched(&mut t, 30, 10, &touches);
    land(&mut t, &r, &f);
    let mut check = |v, touches: &[Touch]| t.check(at, p(v), touches);
    assert_eq!(check(10, &touches[..2]), Check::Read(Level::Table));
    assert_eq!(
        check(9, &[Touch::Table(1)]),
        Check::Wait(p(10), Level::Table)
    );
    // A row that was modified, and one that was not, of a table that was.
    assert_eq!(check(10, &touches), Check::Wait(p(20), Level::Row));
    assert_eq!(check(10, &[row(b"x")]), Check::Read(Level::Row));
    assert_eq!(check(20, &touches), Check::Read(Level::Row));
    assert_eq!(
        check(10, &[Touch::Table(2)]),
        Check::Wait(p(30), Level::Table)
    );
}

#[test]
fn a_slot_is_waited_for_no_further_than_the_timestamp() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
    write(&r, 10, 1, b"a");
    let first = begun(&mut t, 1, 2);
    land(&mut t, &r, &first);
    // Written since, and hiding what was before.
    write(&r, 50, 1, b"a");
    let f = fetched(&mut t, 10, 5, &[Touch::Table(1)]);
    land(&mut t, &r, &f);
    let c = t.check(p(10), p(5), &[Touch::Table(1)]);
    assert_eq!(c, Check::Wait(p(10), Level::Table));
}

#[test]
fn a_slot_fetched_before_the_timestamp_was_published_is_of_no_use() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(1));
    write(&r, 10, 1, b"a");
    let first = begun(&mut t, 1, 2);
    land(&mut t, &r, &first);
    let f = fetched(&mut t, 10, 5, &[Touch::Table(2)]);
    land(&mut t, &r, &f);
    let c = t.check(p(10), p(5), &[Touch::Table(2)]);
    assert_eq!(c, Check::Read(Level::Table));
    write(&r, 20, 2, b"b");
    // The next timestamp brings the slots of tables that were asked for with it.
    let second = begun(&mut t, 5, 6);
    assert!(second.words.contains(&table_slot(2)));
    let c = t.check(p(20), p(15), &[Touch::Table(2)]);
    assert_eq!((c, next(&mut t, 7)), (Check::Missing, None));
    land(&mut t, &r, &second);
    let c = t.check(p(20), p(15), &[Touch::Table(2)]);
    assert_eq!(c, Check::Wait(p(20), Level::Table));
    // A primary of another term may have counted from elsewhere.
    r.lead(CLUSTER, 4, p(20), || p(20));
    let f = begun(&mut t, 8, 9);
    t.landed(f.number, &read(&r, &f), 4).unwrap();
    assert!(t.slots.values().all(|k| k.1 == p(20)));
}

#[test]
fn a_timestamp_of_another_history_is_not_given_out() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(90));
    let early = begun(&mut t, 1, 2);
    assert_eq!(t.check(p(9), p(5), &[Touch::Table(2)]), Check::Missing);
    let late = next(&mut t, 4).expect("slots are missing");
    land(&mut t, &r, &late);
    assert_eq!(ask(&mut t, 1), Ask::Known(p(90)));
    // Promoted behind 50: nobody has 90, perhaps never.
    let r = Region::default();
    r.lead(CLUSTER, 4, p(50), || p(50));
    t.landed(early.number, &read(&r, &early), 4).unwrap();
    assert_eq!(ask(&mut t, 1), Ask::Known(p(50)));
}

#[test]
fn what_was_wanted_when_a_connection_ended_is_asked_for_again() {
    let (mut t, r) = (Timestamps::new(CLUSTER), primary(10));
    let first = begun(&mut t, 1, 2);
    assert_eq!(ask(&mut t, 5), Ask::First);
    t.lost();
    let again = begun(&mut t, 5, 7);
    assert_eq!(ask(&mut t, 1), Ask::Joined);
    let took = t.landed(first.number, &read(&r, &first), 3);
    assert_eq!(took, Err(Rejected::Unknown));
    land(&mut t, &r, &again);
    assert_eq!(ask(&mut t, 5), Ask::Known(p(10)));
}
