//! The mode `rows`, directed: what a delta waits for, what it takes from which record, who wins, and what the worker may move.

use super::*;

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// One value of 8 units and this many further records, two units in each as far as there are any.
fn world(further: u16) -> World {
    let w = World::of(Mode::Rows);
    if further > 0 {
        records(&w, 1, further);
        let moves: Vec<txn::Move> = (1..=further.min(3)).map(|n| move_to(n, 2)).collect();
        assert!(balance(&w, &moves), "nobody is in the way");
    }
    w
}

fn move_to(to: u16, amount: i128) -> txn::Move {
    txn::Move {
        from: 0,
        to,
        amount,
    }
}

fn balance(w: &World, moves: &[txn::Move]) -> bool {
    let mut t = w.begin(Isolation::ReadCommitted, true);
    t.begin_statement().unwrap();
    let did = t.balance_value(&w.stock, &key(1), QTY, moves).unwrap();
    did && t.commit(&w.order).is_ok()
}

/// What the records hold, the row first.
fn shares(w: &World) -> Vec<i128> {
    let values = w.manager.split_values(false);
    let value = values.iter().find(|v| usize::from(v.column) == QTY);
    let shares = value.and_then(|v| v.shares.as_ref()).expect("it is spread");
    shares.iter().map(|s| s.share).collect()
}

fn sell(w: &World, t: &mut Txn, n: i64) -> Result<Outcome> {
    run(t, |t| {
        t.add_to(&w.stock, &key(1), &[take(QTY, -n, Some(n))], 0)
    })
}

#[test]
fn deltas_of_one_record_queue_and_read_it_again() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = world(0);
        let (mut a, mut b) = (w.begin(level, true), w.begin(level, true));
        assert_eq!(sell(&w, &mut a, 5).unwrap(), Outcome::Done);
        let blocked = sell(&w, &mut b, 2);
        assert!(
            matches!(blocked, Err(Stop::Blocked)),
            "{level:?}: {blocked:?}"
        );
        b.rollback_statement();
        let _wait = b.take_wait().expect("it waits");
        assert_eq!(w.manager.reservations(), [], "nothing is reserved");
        a.commit(&w.order).unwrap();
        assert_eq!(sell(&w, &mut b, 2).unwrap(), Outcome::Done, "{level:?}");
        b.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 1, "{level:?}");
    }
}

#[test]
fn deltas_of_other_records_do_not_meet() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = world(3);
    let mut open: Vec<Txn> = vec![];
    let mut met = 0;
    for _ in 0..12 {
        let mut t = w.begin(Isolation::RepeatableRead, true);
        match sell(&w, &mut t, 1) {
            Ok(outcome) => {
                assert_eq!(outcome, Outcome::Done);
                open.push(t);
            }
            Err(_) => met += 1,
        }
    }
    // Four records: chance finds most of them.
    assert!(
        (2..=4).contains(&open.len()) && met == 12 - open.len(),
        "{met}"
    );
    let sold = open.len() as i64;
    open.into_iter()
        .for_each(|t| assert!(t.commit(&w.order).is_ok()));
    assert_eq!(w.committed()[&1][0], 8 - sold);
}

#[test]
fn the_first_committer_wins_where_the_value_was_read() {
    let _alone = ONE_AT_A_TIME.lock();
    for (level, further) in LEVELS.into_iter().flat_map(|l| [(l, 0), (l, 3)]) {
        let w = world(further);
        let mut a = w.begin(level, true);
        run(&mut a, |t| read(t, &w, 1)).unwrap();
        let mut b = w.begin(level, true);
        assert_eq!(sell(&w, &mut b, 1).unwrap(), Outcome::Done);
        b.commit(&w.order).unwrap();
        let done = sell(&w, &mut a, 1).map_err(|e| e.error().map(|e| e.code()));
        let done = done.and_then(|_| a.commit(&w.order).map_err(|e| Some(e.code())));
        match level {
            Isolation::ReadCommitted => drop(done.unwrap()),
            _ => assert_eq!(done.unwrap_err(), Some(SqlState::SERIALIZATION_FAILURE)),
        }
    }
}

#[test]
fn a_subtraction_walks_until_the_amount_is_collected() {
    let _alone = ONE_AT_A_TIME.lock();
    for (level, locking) in LEVELS.into_iter().flat_map(|l| [(l, true), (l, false)]) {
        let w = world(3);
        assert_eq!(shares(&w), [2, 2, 2, 2]);
        let mut t = w.begin(level, locking);
        assert_eq!(sell(&w, &mut t, 9).unwrap(), Outcome::Refused);
        assert_eq!(sell(&w, &mut t, 5).unwrap(), Outcome::Done);
        t.savepoint("s");
        assert_eq!(sell(&w, &mut t, 2).unwrap(), Outcome::Done);
        assert_eq!(run(&mut t, |t| read(t, &w, 1)).unwrap(), Some([1, 0, 0]));
        t.rollback_to_savepoint("s").unwrap();
        assert_eq!(sell(&w, &mut t, 3).unwrap(), Outcome::Done);
        // Without a guard the exact write says which constraint it breaks.
        let more = [take(QTY, -1, None)];
        let more = run(&mut t, |t| t.add_to(&w.stock, &key(1), &more, 0));
        assert_eq!(more.unwrap(), Outcome::Exact);
        t.commit(&w.order).unwrap();
        assert_eq!(shares(&w), [0, 0, 0, 0], "{level:?}");
    }
}

/// One column is taken from, the next one is refused: the records of the first are free again, and stay so when the transaction has ended.
#[test]
fn what_is_refused_at_the_second_column_leaves_no_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    for (need, refused) in [(Some(100), Outcome::Refused), (None, Outcome::Exact)] {
        let w = world(0);
        let mut a = w.begin(Isolation::ReadCommitted, true);
        let both = [take(2, 1, None), take(QTY, -100, need)];
        let said = run(&mut a, |t| t.add_to(&w.stock, &key(1), &both, 0));
        assert_eq!(said.unwrap(), refused);
        let one = [take(2, 1, None)];
        let free = |when| {
            let mut b = w.begin(Isolation::ReadCommitted, true);
            let said = run(&mut b, |t| t.add_to(&w.stock, &key(1), &one, 0));
            assert!(matches!(said, Ok(Outcome::Done)), "{when}: {said:?}");
        };
        free("while it runs");
        drop(a);
        free("when it has ended");
    }
}

/// The same where the statement has waited for a record of the first column in between.
#[test]
fn what_is_refused_after_a_wait_leaves_no_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    for (need, refused) in [(Some(100), Outcome::Refused), (None, Outcome::Exact)] {
        let w = world(0);
        let (mut a, mut b) = (
            w.begin(Isolation::ReadCommitted, true),
            w.begin(Isolation::ReadCommitted, true),
        );
        let one = [take(2, 1, None)];
        let add =
            |t: &mut Txn, deltas: &[Delta]| run(t, |t| t.add_to(&w.stock, &key(1), deltas, 0));
        assert_eq!(add(&mut a, &one).unwrap(), Outcome::Done);
        let both = [take(2, 1, None), take(QTY, -100, need)];
        let blocked = add(&mut b, &both);
        assert!(matches!(blocked, Err(Stop::Blocked)), "{blocked:?}");
        b.rollback_statement();
        let _wait = b.take_wait();
        a.commit(&w.order).unwrap();
        assert_eq!(add(&mut b, &both).unwrap(), refused);
        // `b` is open still.
        let mut c = w.begin(Isolation::ReadCommitted, true);
        let said = add(&mut c, &one);
        assert!(matches!(said, Ok(Outcome::Done)), "{said:?}");
    }
}

/// The records that have proved a guard stay locked when a later statement is refused: the guard holds until the transaction has ended.
#[test]
fn a_serializable_guard_outlives_a_refusal() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = world(3);
    let mut t = w.begin(Isolation::Serializable, true);
    let take_one = |t: &mut Txn, need| {
        let delta = [take(QTY, -1, Some(need))];
        run(t, |t| t.add_to(&w.stock, &key(1), &delta, 0)).unwrap()
    };
    // All four records are needed to say that there are eight.
    assert_eq!(take_one(&mut t, 8), Outcome::Done);
    assert_eq!(take_one(&mut t, 100), Outcome::Refused);
    // Each takes a record by chance: all four are locked.
    for _ in 0..20 {
        let mut other = w.begin(Isolation::ReadCommitted, true);
        let blocked = sell(&w, &mut other, 1);
        assert!(matches!(blocked, Err(Stop::Blocked)), "{blocked:?}");
        other.rollback_statement();
        let _wait = other.take_wait();
    }
    let mut other = w.begin(Isolation::ReadCommitted, true);
    t.commit(&w.order).unwrap();
    assert_eq!(sell(&w, &mut other, 1).unwrap(), Outcome::Done);
    other.commit(&w.order).unwrap();
    assert_eq!(w.committed()[&1][0], 6);
}

/// The library does not wait: a record that is locked is 40001, as a row is.
#[test]
fn without_waiting_a_locked_record_is_a_lost_race() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = world(0);
    let mut a = w.begin(Isolation::Serializable, true);
    assert_eq!(sell(&w, &mut a, 1).unwrap(), Outcome::Done);
    let mut b = w.begin(Isolation::Serializable, false);
    let e = sell(&w, &mut b, 1).unwrap_err();
    let code = e.error().map(|e| e.code());
    assert_eq!(code, Some(SqlState::SERIALIZATION_FAILURE));
}

#[test]
fn the_worker_moves_what_is_free_and_gives_way() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = world(3);
        // A snapshot from before the move, and a statement after it: nothing is lost and nothing fails.
        let mut early = w.begin(level, true);
        run(&mut early, |t| read(t, &w, 2)).unwrap();
        // No more than the record has, whatever was decided.
        assert!(balance(&w, &[move_to(1, 50)]));
        assert_eq!(shares(&w), [0, 4, 2, 2]);
        assert!(!balance(&w, &[move_to(1, 50)]));
        assert!(!balance(&w, &[move_to(9, 1)]), "there is no such record");
        assert_eq!(sell(&w, &mut early, 8).unwrap(), Outcome::Done);
        // All records are locked now.
        let back = txn::Move {
            from: 1,
            to: 0,
            amount: 1,
        };
        assert!(!balance(&w, &[back]));
        early.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 0, "{level:?}");
    }
    // What is taken away goes to the row, which may hold most.
    let w = world(3);
    records(&w, 1, 1);
    assert_eq!(shares(&w), [6, 2]);
    // In the other mode there is nothing to balance.
    let w = World::new();
    records(&w, 1, 3);
    assert!(!balance(&w, &[move_to(1, 2)]));
}

/// The balance looks at values with deltas since the last look, and at none of the other mode.
#[test]
fn values_that_rest_are_not_looked_at() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = world(3);
    assert!(w.manager.rows_in_use().is_empty(), "nothing was sold");
    let mut t = w.begin(Isolation::ReadCommitted, true);
    assert_eq!(sell(&w, &mut t, 1).unwrap(), Outcome::Done);
    t.commit(&w.order).unwrap();
    let seen = w.manager.rows_in_use();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].shares.as_ref().map(Vec::len), Some(4));
    // The first look counts the delta, the second finds none since.
    for _ in 0..2 {
        assert_eq!(w.manager.split_values(true).len(), 1);
    }
    assert!(w.manager.rows_in_use().is_empty(), "it rests");
    let w = World::new();
    records(&w, 1, 3);
    let mut t = w.begin(Isolation::ReadCommitted, true);
    assert_eq!(sell(&w, &mut t, 1).unwrap(), Outcome::Done);
    assert!(w.manager.rows_in_use().is_empty(), "the other mode");
}

/// An exact write waits for the deltas of all records, and is waited for.
#[test]
fn an_exact_write_excludes_deltas() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = world(3);
    let mut a = w.begin(Isolation::ReadCommitted, true);
    assert_eq!(sell(&w, &mut a, 1).unwrap(), Outcome::Done);
    let mut b = w.begin(Isolation::ReadCommitted, true);
    let set = |t: &mut Txn| run(t, |t| t.update(&w.stock, &key(1), &row(1, 3, 0, 0)));
    assert!(matches!(set(&mut b), Err(Stop::Blocked)));
    b.rollback_statement();
    let _wait = b.take_wait();
    a.commit(&w.order).unwrap();
    run(&mut b, |t| read(t, &w, 1)).unwrap();
    set(&mut b).unwrap();
    b.commit(&w.order).unwrap();
    assert_eq!(w.committed()[&1][0], 3);
    let values = w.manager.split_values(false);
    assert!(values.iter().all(|v| v.records == 0), "{values:?}");
}
