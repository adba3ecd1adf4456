//! What a model of sites found before there were any, one test for each point: the order of events that went wrong, step by step.
//!
//! Points 1 to 4 are about commits that a site shows before those that precede them. Canon's sites show none, so the orders cannot come
//! up; the tests hold what the points are for. A site that would answer early must keep them.

use base::schema::FkAction;
use base::{Candidate, Committing, Isolation, Position, Result, RowRef};
use env::PowerCut;
use node::Verdict;
use sim::histories::bench::{Bench, Slot, is_lost};
use sim::histories::tables::{QTY, Table, values};
use sim::schema::key;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use store::pin;
use txn::{Delta, Durability, LockMode, Outcome, Txn, TxnOptions, WaitPolicy};

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// Planted faults are the process's, and tests run on threads.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

type Future = Pin<Box<dyn std::future::Future<Output = Result<base::CommitWait>> + Send>>;

/// A COMMIT at a site.
struct Waits {
    future: Future,
    slot: Slot,
    number: u64,
    candidate: Vec<u8>,
}

impl Waits {
    /// What the client is told, if it is told by now.
    fn told(&mut self) -> Option<Result<Position>> {
        let mut context = Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(done) => Some(done.map(base::CommitWait::position)),
            Poll::Pending => None,
        }
    }
}

fn begin(bench: &Bench, node: usize, isolation: Isolation) -> Txn {
    let options = TxnOptions {
        isolation,
        ..TxnOptions::default()
    };
    let mut t = bench.node(node).begin(options, false);
    if node > 0 {
        t.set_read_position(bench.shown(node));
    }
    t.begin_statement().expect("a statement");
    t
}

fn get(bench: &Bench, node: usize, t: &mut Txn, of: Table, id: i64) -> Option<Vec<i64>> {
    let read = t.get(&bench.handle(node, of), &key(id), ints);
    read.expect("a read")
}

/// All columns.
fn ints(row: RowRef<'_>) -> Vec<i64> {
    let all = row.values();
    all.iter().map(|v| v.as_i64().expect("not NULL")).collect()
}

/// INSERT, or UPDATE of the row that is there.
fn put(bench: &Bench, node: usize, t: &mut Txn, of: Table, id: i64, row: &[i64]) {
    let h = bench.handle(node, of);
    let there = get(bench, node, t, of, id).is_some();
    let done = match there {
        true => t.update(&h, &key(id), &values(id, row)),
        false => t.insert(&h, &values(id, row)),
    };
    done.and_then(|()| t.end_statement()).expect("a change");
}

fn delete(bench: &Bench, node: usize, t: &mut Txn, of: Table, id: i64) {
    let gone = t.delete(&bench.handle(node, of), &key(id));
    assert!(gone.expect("a change"), "it was there");
    t.end_statement().expect("its references hold");
}

fn add(bench: &Bench, node: usize, t: &mut Txn, id: i64, by: i64) {
    let delta = Delta {
        column: QTY,
        amount: by.into(),
        need: None,
    };
    let h = bench.handle(node, Table::Stock);
    let done = t.add_to(&h, &key(id), &[delta], 0);
    assert_eq!(done.expect("a delta"), Outcome::Done);
    t.end_statement().expect("a change");
}

/// A transaction at the primary, durable and ready to be sent.
fn at_primary(bench: &mut Bench, f: impl FnOnce(&Bench, &mut Txn)) -> Position {
    let mut t = begin(bench, 0, Isolation::Serializable);
    f(bench, &mut t);
    let at = bench.primary.commit(t).expect("a commit").position();
    bench.flush();
    at
}

fn commit(bench: &mut Bench, node: usize, t: Txn) -> Waits {
    bench.numbers += 1;
    let number = bench.numbers;
    let Committing::Later(future) = bench.node(node).committing(t, number) else {
        panic!("a site asks its primary");
    };
    let (request, slot) = bench.site(node).mailbox.fetch().expect("it asks");
    Waits {
        future,
        slot,
        number,
        candidate: request.candidate,
    }
}

/// The candidate reaches the primary, and the verdict the site.
fn certify(bench: &mut Bench, w: &Waits) -> Result<Position> {
    let candidate = Candidate::decode(&w.candidate).expect("just encoded");
    assert_eq!(candidate.number, w.number);
    let made = bench
        .primary
        .certify_as(&candidate, Durability::On, Position::MAX);
    bench.flush();
    let verdict = made.map(|v| match v {
        Verdict::Committed(wait) => wait.position(),
        Verdict::Running => panic!("nothing runs"),
    });
    w.slot.put(verdict.clone());
    verdict
}

/// The site gets the next group and shows it. Whether there was one.
fn advance(bench: &mut Bench, node: usize) -> bool {
    let sent = bench.send(node, 0);
    bench.settle(node);
    sent
}

fn all_shown(bench: &mut Bench) {
    for node in 1..=bench.sites.len() {
        bench.catch_up(node);
    }
}

/// Parents 1 and 2 with u = 1 and 2, a child of 2, a stock of 5; shown everywhere.
fn bench(sites: usize, on_delete: FkAction) -> Bench {
    let mut b = Bench::new(1, sites, on_delete);
    at_primary(&mut b, |b, t| {
        put(b, 0, t, Table::Parent, 1, &[0, 1]);
        t.begin_statement().expect("a statement");
        put(b, 0, t, Table::Parent, 2, &[0, 2]);
        t.begin_statement().expect("a statement");
        put(b, 0, t, Table::Child, 1, &[2]);
        t.begin_statement().expect("a statement");
        put(b, 0, t, Table::Stock, 1, &[5]);
    });
    all_shown(&mut b);
    b
}

/// Each change is seen by a block that only reads, at the site where it was made, only with all that precede it.
fn no_two_sites_see_forks() {
    let mut b = bench(2, FkAction::NoAction);
    let change = |b: &mut Bench, node: usize| {
        let mut t = begin(b, node, Isolation::Serializable);
        put(
            b,
            node,
            &mut t,
            Table::Parent,
            node as i64,
            &[1, node as i64],
        );
        commit(b, node, t)
    };
    let (mut one, mut two) = (change(&mut b, 1), change(&mut b, 2));
    let first = certify(&mut b, &one).expect("a commit");
    let second = certify(&mut b, &two).expect("a commit");
    assert!(first < second);
    let sees = |b: &Bench, node| {
        let mut t = begin(b, node, Isolation::Serializable);
        let mut v = |id| get(b, node, &mut t, Table::Parent, id).expect("it is there")[1];
        (v(1), v(2))
    };
    // Its verdict is there, and what precedes it is not.
    for group in 0..3 {
        for (node, mine, at) in [(1, &mut one, first), (2, &mut two, second)] {
            let (a, z) = sees(&b, node);
            assert!(
                a >= z,
                "site {node} sees the second change without the first"
            );
            let told = mine.told();
            if let Some(told) = told {
                assert_eq!(told.expect("a commit"), at);
                assert!(b.shown(node) >= at, "told, and not shown");
                // The session goes on: it has to see what it was told of.
                assert_eq!(if node == 1 { a } else { z }, 1);
                mine.future = Box::pin(std::future::pending());
            }
            assert_eq!(advance(&mut b, node), group < 2);
        }
    }
    assert_eq!((sees(&b, 1), sees(&b, 2)), ((1, 1), (1, 1)));
}

#[test]
fn point_1_a_block_that_turned_out_to_read_only_sees_no_fork() {
    let _alone = alone();
    no_two_sites_see_forks();
}

/// With a site that answers as soon as it has the verdict.
#[cfg(feature = "faults")]
#[test]
fn point_1_is_found_where_a_site_answers_early() {
    let _alone = alone();
    env::fault::plant("site.answers_unshown", true);
    let ran = std::panic::catch_unwind(no_two_sites_see_forks);
    env::fault::plant("site.answers_unshown", false);
    assert!(ran.is_err(), "a session is told and does not see it");
}

/// A primary that was replaced has given the verdict, and the history that the site follows by now has another commit there. The next primary is asked, and commits it
/// once.
fn a_verdict_of_another_history_is_asked_for_again() {
    let mut b = bench(1, FkAction::NoAction);
    let mut t = begin(&b, 1, Isolation::RepeatableRead);
    put(&b, 1, &mut t, Table::Parent, 1, &[7, 1]);
    let mut waits = commit(&mut b, 1, t);
    waits.slot.put(Ok(b.shown(1)));
    assert!(waits.told().is_none(), "nothing here has committed");
    let (request, slot) = b.site(1).mailbox.fetch().expect("it asks again");
    assert!(request.again && request.number == waits.number);
    assert_eq!(request.candidate, waits.candidate);
    waits.slot = slot;
    let at = certify(&mut b, &waits).expect("a commit");
    assert!(waits.told().is_none(), "it is not shown here");
    advance(&mut b, 1);
    let told = waits.told().expect("it is shown").expect("a commit");
    assert_eq!(told, at);
    let twice = certify(&mut b, &waits);
    assert_eq!(twice.expect("the same"), at);
}

#[test]
fn a_verdict_counts_only_where_the_history_has_the_commit() {
    let _alone = alone();
    a_verdict_of_another_history_is_asked_for_again();
}

#[cfg(feature = "faults")]
#[test]
fn a_site_that_believes_any_verdict_is_found() {
    let _alone = alone();
    env::fault::plant("site.believes_any_verdict", true);
    let ran = std::panic::catch_unwind(a_verdict_of_another_history_is_asked_for_again);
    env::fault::plant("site.believes_any_verdict", false);
    assert!(ran.is_err(), "a client is told of a commit that is nowhere");
}

#[test]
fn point_2_a_session_does_not_go_back() {
    let _alone = alone();
    let mut b = bench(2, FkAction::NoAction);
    for level in LEVELS {
        let mut t = begin(&b, 1, Isolation::RepeatableRead);
        let v = get(&b, 1, &mut t, Table::Parent, 1).expect("it is there")[1];
        put(&b, 1, &mut t, Table::Parent, 1, &[v + 1, 1]);
        let mut waits = commit(&mut b, 1, t);
        let at = certify(&mut b, &waits).expect("a commit");
        // Another session stands below it as long as it is not shown.
        let before = begin(&b, 1, level).snapshot().expect("a snapshot");
        assert!(before < at && waits.told().is_none());
        advance(&mut b, 1);
        waits.told().expect("it is shown").expect("a commit");
        // It sees it in a block that it rolls back, and in all that follow.
        for again in LEVELS {
            let mut t = begin(&b, 1, again);
            assert!(t.snapshot() >= Some(at));
            let seen = get(&b, 1, &mut t, Table::Parent, 1).expect("it is there");
            assert_eq!(seen[1], v + 1, "{level:?}, then {again:?}");
        }
        // Where it goes with its token it waits until this says yes.
        assert!(b.shown(2) < at);
        b.catch_up(2);
        assert!(b.shown(2) >= at);
    }
}

/// Constraints in the state that a node shows, among ids up to 9.
fn is_sound(b: &Bench, node: usize) {
    let (at, guard) = (b.shown(node), pin());
    let rows = |of: Table| -> Vec<Vec<i64>> {
        let h = b.handle(node, of);
        let row = |id| {
            let record = h.storage.primary.get(&key(id), &guard)?;
            let row = record.row_at(at, &guard)?;
            Some(ints(h.table.layout.row(row)))
        };
        (1..10).filter_map(row).collect()
    };
    let (parents, children) = (rows(Table::Parent), rows(Table::Child));
    let unique: BTreeSet<i64> = parents.iter().map(|r| r[2]).collect();
    assert_eq!(
        unique.len(),
        parents.len(),
        "node {node} at {at}: {parents:?}"
    );
    let ids: BTreeSet<i64> = parents.iter().map(|r| r[0]).collect();
    let orphans = children.iter().filter(|c| !ids.contains(&c[1]));
    assert_eq!(orphans.count(), 0, "node {node} at {at}: {children:?}");
}

/// A unique key is taken and given up, and a parent goes and comes back, between a candidate's snapshot and its position.
#[test]
fn point_3_no_state_that_breaks_a_constraint_is_shown() {
    let _alone = alone();
    let mut committed = 0;
    for takes_key in [true, false] {
        for reclaims in [true, false] {
            let mut b = bench(2, FkAction::NoAction);
            let mut t = begin(&b, 1, Isolation::RepeatableRead);
            match takes_key {
                true => put(&b, 1, &mut t, Table::Parent, 5, &[0, 7]),
                false => put(&b, 1, &mut t, Table::Child, 5, &[1]),
            }
            let mut waits = commit(&mut b, 1, t);
            for gives in [false, true] {
                at_primary(&mut b, |b, t| match (takes_key, gives) {
                    (true, false) => put(b, 0, t, Table::Parent, 6, &[0, 7]),
                    (true, true) => delete(b, 0, t, Table::Parent, 6),
                    (false, false) => delete(b, 0, t, Table::Parent, 1),
                    (false, true) => put(b, 0, t, Table::Parent, 1, &[3, 1]),
                });
            }
            if reclaims {
                b.primary.reclaim_step();
            }
            // At its position nothing is in its way.
            let verdict = certify(&mut b, &waits);
            match &verdict {
                Ok(_) => committed += 1,
                Err(e) => assert!(is_lost(e), "{e}"),
            }
            for node in [1, 2] {
                is_sound(&b, node);
                while advance(&mut b, node) {
                    is_sound(&b, node);
                }
            }
            let told = waits.told().expect("all is shown");
            assert_eq!(told.is_ok(), verdict.is_ok());
        }
    }
    assert!(committed > 0, "refusing always would hold, too");
}

/// A delta is merged over others that come between its snapshot and its position.
#[test]
fn point_4_a_move_shows_what_it_came_to_at_its_position() {
    let _alone = alone();
    let mut b = bench(1, FkAction::NoAction);
    let mut t = begin(&b, 1, Isolation::RepeatableRead);
    add(&b, 1, &mut t, 1, -2);
    let mut waits = commit(&mut b, 1, t);
    let mut shall = vec![(b.shown(1), 5)];
    let one = at_primary(&mut b, |b, t| add(b, 0, t, 1, 3));
    shall.push((one, 8));
    let two = at_primary(&mut b, |b, t| put(b, 0, t, Table::Stock, 1, &[4]));
    shall.push((two, 4));
    let mine = certify(&mut b, &waits).expect("deltas lose to nothing");
    shall.push((mine, 2));
    let last = at_primary(&mut b, |b, t| add(b, 0, t, 1, 6));
    shall.push((last, 8));
    let mut told = false;
    loop {
        let mut t = begin(&b, 1, Isolation::RepeatableRead);
        let at = t.snapshot().expect("a snapshot");
        let value = get(&b, 1, &mut t, Table::Stock, 1).expect("it is there")[1];
        let stands = shall.iter().rfind(|s| s.0 <= at).expect("the first");
        assert_eq!(value, stands.1, "at {at}");
        if !told {
            told = waits.told().is_some();
        }
        assert_eq!(told, at >= mine);
        if !advance(&mut b, 1) {
            break;
        }
    }
    assert!(b.shown(1) >= last);
}

/// An insert at site 1 over a key whose last version, if any, is a tombstone.
fn insert_over(b: &mut Bench, between: impl FnOnce(&mut Bench)) -> Result<Position> {
    let mut t = begin(b, 1, Isolation::Serializable);
    put(b, 1, &mut t, Table::Parent, 5, &[0, 5]);
    let waits = commit(b, 1, t);
    between(b);
    certify(b, &waits)
}

fn come_and_go(b: &mut Bench) {
    at_primary(b, |b, t| put(b, 0, t, Table::Parent, 5, &[9, 5]));
    at_primary(b, |b, t| delete(b, 0, t, Table::Parent, 5));
}

#[test]
fn point_5_tombstones_inside_and_outside_of_the_snapshot() {
    let _alone = alone();
    // Inside: seen by the site, or taken away there or at the primary. A retry must not lose for ever.
    for reclaims in [&[][..], &[0], &[1], &[0, 1]] {
        let mut b = bench(1, FkAction::NoAction);
        come_and_go(&mut b);
        all_shown(&mut b);
        reclaims.iter().for_each(|n| b.node(*n).reclaim_step());
        let done = insert_over(&mut b, |_| ());
        assert!(done.is_ok(), "{reclaims:?}: {done:?}");
    }
    // Outside: of two that were there at once one is refused, as long as the primary knows.
    let mut b = bench(1, FkAction::NoAction);
    let e = insert_over(&mut b, come_and_go).expect_err("it was changed concurrently");
    assert!(is_lost(&e), "{e}");
    // What the primary has forgotten leaves the state that was read. It counts as unchanged (docs/sites.md).
    let mut b = bench(1, FkAction::NoAction);
    let done = insert_over(&mut b, |b| {
        come_and_go(b);
        b.primary.reclaim_step();
    });
    assert!(done.is_ok(), "{done:?}");
    // And what is there now is in the way in any case.
    let mut b = bench(1, FkAction::NoAction);
    let e = insert_over(&mut b, |b| {
        at_primary(b, |b, t| put(b, 0, t, Table::Parent, 5, &[9, 9]));
        b.primary.reclaim_step();
    });
    assert!(is_lost(&e.expect_err("the key is taken")));
}

/// A row is locked at the site and changed elsewhere; what the transaction changes is another row.
fn change_under_a_lock(level: Isolation) -> Result<Position> {
    let mut b = bench(1, FkAction::NoAction);
    let mut t = begin(&b, 1, level);
    get(&b, 1, &mut t, Table::Parent, 1);
    let h = b.handle(1, Table::Parent);
    let locked = t.lock_row(&h, &key(1), LockMode::Update, WaitPolicy::Wait);
    assert!(locked.expect("a lock"));
    put(&b, 1, &mut t, Table::Stock, 1, &[1]);
    let waits = commit(&mut b, 1, t);
    at_primary(&mut b, |b, t| put(b, 0, t, Table::Parent, 1, &[7, 1]));
    certify(&mut b, &waits)
}

#[test]
fn point_6_rows_that_were_locked_travel_at_every_level() {
    let _alone = alone();
    for level in LEVELS {
        let e = change_under_a_lock(level).expect_err("the locked row has changed");
        assert!(is_lost(&e), "{level:?}: {e}");
    }
}

#[cfg(feature = "faults")]
#[test]
fn point_6_is_found_where_locks_stay_at_the_site() {
    let _alone = alone();
    env::fault::plant("candidate.no_locks", true);
    let done = change_under_a_lock(Isolation::RepeatableRead);
    env::fault::plant("candidate.no_locks", false);
    done.expect("nothing else refuses it");
}

/// A parent is deleted at a site while a child of it comes at the primary: run again, the statement does what its action says.
#[test]
fn point_7_a_new_child_is_a_conflict_and_no_violation() {
    let _alone = alone();
    for on_delete in [FkAction::Cascade, FkAction::NoAction, FkAction::Restrict] {
        let mut b = bench(1, on_delete);
        let mut t = begin(&b, 1, Isolation::RepeatableRead);
        delete(&b, 1, &mut t, Table::Parent, 1);
        let mut waits = commit(&mut b, 1, t);
        at_primary(&mut b, |b, t| put(b, 0, t, Table::Child, 3, &[1]));
        let e = certify(&mut b, &waits).expect_err("there is a child");
        assert!(is_lost(&e), "{on_delete:?}: {e}");
        let told = waits.told().expect("a refusal waits for nothing here");
        assert!(is_lost(&told.expect_err("it was refused")));
        all_shown(&mut b);
        let mut t = begin(&b, 1, Isolation::RepeatableRead);
        let gone = t.delete(&b.handle(1, Table::Parent), &key(1));
        let gone = gone.and_then(|_| t.end_statement());
        assert_eq!(
            gone.is_ok(),
            on_delete == FkAction::Cascade,
            "{on_delete:?}"
        );
        if on_delete == FkAction::Cascade {
            let waits = commit(&mut b, 1, t);
            certify(&mut b, &waits).expect("nothing is in the way");
            all_shown(&mut b);
        }
        is_sound(&b, 1);
    }
}

/// The log of a site has no gap after a crash either: what it had is shown, and the rest comes behind it.
#[test]
fn a_site_that_comes_back_goes_on_at_the_first_gap() {
    let _alone = alone();
    for cut in [PowerCut::KeepAll, PowerCut::LoseAll] {
        let mut b = bench(1, FkAction::NoAction);
        let mut last = Position::ZERO;
        for v in 1..=4 {
            last = at_primary(&mut b, |b, t| put(b, 0, t, Table::Parent, 1, &[v, 1]));
        }
        assert!(advance(&mut b, 1));
        b.node(1).persist_step(true);
        let had = b.site(1).received();
        // The one after the next comes first, and counts for nothing.
        assert!(b.send(1, 1));
        assert_eq!(b.site(1).received(), had);
        assert!(advance(&mut b, 1));
        b.crash(1, cut);
        assert!(b.site(1).received() >= had && b.site(1).received() < last);
        b.catch_up(1);
        let mut t = begin(&b, 1, Isolation::Serializable);
        let row = get(&b, 1, &mut t, Table::Parent, 1).expect("it is there");
        assert_eq!(row, [1, 4, 1]);
    }
}
