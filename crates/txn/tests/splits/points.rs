//! What a model of the design found wrong with it, each as a directed test. The random histories beside this file meet them, too, but rarely.
//!
//! | found | shown by |
//! |---|---|
//! | refused, though at no moment there was too little | `a_value_that_is_moved_among_its_records_is_not_refused` |
//! | workers in the way of others | `workers_give_way` |
//! | two that want more wait for each other | `two_that_find_too_little_do_not_wait_for_each_other` |
//! | the same, where each has deltas already | `of_two_with_deltas_that_want_more_one_is_a_deadlock` |
//! | the same, because the shares that were added up are no state of the value | `an_addition_on_its_way_is_no_lack` |
//! | a guard answers against the snapshot | `a_guard_says_of_the_snapshot_what_it_says_of_now`, `a_snapshot_does_not_move_over_a_guard`, `a_serializable_guard_stays_whole` |
//! | READ COMMITTED shows a value below its bound | `what_a_delta_lives_off_is_shown_with_it` |
//! | own deltas are not counted | `own_deltas_count_for_guards_and_bounds` |
//! | the library's deltas, and exact writes beside records | `deltas_without_waiting_lock_the_row`, `an_exact_write_looks_at_every_record`, `what_was_looked_at_is_compared_after_the_lock` |
//! | a delta looks at the key of its row alone | `a_row_that_was_found_by_its_key_has_to_be_there` |

use super::*;
use txn::{CommitOrder, LockMode, WaitPolicy};

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

fn add(w: &World, t: &mut Txn, amount: i64, need: Option<i64>) -> Result<Outcome> {
    let delta = [take(QTY, amount, need)];
    run(t, |t| {
        read_key(t, w, 1)?;
        t.add_to(&w.stock, &key(1), &delta, txn::column_set(&[0]))
    })
}

fn set(w: &World, t: &mut Txn, qty: i64) -> Result<()> {
    run(t, |t| t.update(&w.stock, &key(1), &row(1, qty, 0, 0)))
}

fn add_alone(w: &World, amount: i64) {
    let mut t = w.begin(Isolation::ReadCommitted, true);
    assert_eq!(add(w, &mut t, amount, None).unwrap(), Outcome::Done);
    t.commit(&w.order).unwrap();
}

#[test]
fn a_value_that_is_moved_among_its_records_is_not_refused() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        records(&w, 1, 4);
        (0..4).for_each(|_| add_alone(&w, 1));
        let mut t = w.begin(level, true);
        // No single record holds as much.
        assert_eq!(add(&w, &mut t, -5, Some(12)).unwrap(), Outcome::Done);
        // More records beside the reservation, and fewer before the next one.
        records(&w, 1, 6);
        assert_eq!(add(&w, &mut t, -6, Some(7)).unwrap(), Outcome::Done);
        t.commit(&w.order).unwrap();
        records(&w, 1, 1);
        let mut t = w.begin(level, true);
        assert_eq!(add(&w, &mut t, -1, Some(2)).unwrap(), Outcome::Refused);
        assert_eq!(add(&w, &mut t, -1, Some(1)).unwrap(), Outcome::Done);
        t.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 0, "{level:?}");
    }
}

/// Does something between the position of a commit and its push.
struct Between<'a>(&'a MemoryOrder, &'a dyn Fn());

impl CommitOrder for Between<'_> {
    fn wait_for_room(&self, check_cancelled: &dyn Fn() -> base::Result<()>) -> base::Result<()> {
        self.0.wait_for_room(check_cancelled)
    }

    fn begin(&self) -> base::Result<(Position, u64)> {
        let begun = self.0.begin();
        (self.1)();
        begun
    }

    fn ready(&self, ticket: u64, heads: Vec<u8>, data: Vec<u8>) {
        self.0.ready(ticket, heads, data);
    }

    fn abort(&self, ticket: u64) {
        self.0.abort(ticket);
    }
}

/// A later subtraction is pushed to one record, an earlier addition is not yet pushed to another. What the shares come to then is no state of
/// the value, so nothing is refused by it.
#[test]
fn an_addition_on_its_way_is_no_lack() {
    let _alone = ONE_AT_A_TIME.lock();
    let mut asked = 0;
    // Chance may take one record for both. Then the second commit waits for the first, and there is nothing to see.
    for burned in 0..12 {
        let w = World::new();
        records(&w, 1, 4);
        (0..burned).for_each(|_| drop(w.begin(Isolation::ReadCommitted, true)));
        let mut reader = w.begin(Isolation::ReadCommitted, true);
        reader.begin_statement().unwrap();
        read_key(&mut reader, &w, 1).unwrap();
        let [mut more, mut less] = [0; 2].map(|_| w.begin(Isolation::ReadCommitted, true));
        assert_eq!(add(&w, &mut more, 5, None).unwrap(), Outcome::Done);
        assert_eq!(add(&w, &mut less, -5, None).unwrap(), Outcome::Done);
        let (reader, less) = (Mutex::new(reader), Mutex::new(Some(less)));
        let said = Mutex::new(None);
        std::thread::scope(|s| {
            let between = || {
                let less = less.lock().take().expect("once");
                let (order, patience) = (&w.order, std::time::Duration::from_millis(300));
                let begun = std::time::Instant::now();
                let commit = s.spawn(move || less.commit(order).map(drop));
                while !commit.is_finished() && begun.elapsed() < patience {
                    std::thread::yield_now();
                }
                if commit.is_finished() {
                    let delta = [take(QTY, -1, Some(4))];
                    let mut reader = reader.lock();
                    let columns = txn::column_set(&[0]);
                    *said.lock() = Some(reader.add_to(&w.stock, &key(1), &delta, columns));
                }
            };
            more.commit(&Between(&w.order, &between)).unwrap();
        });
        assert_eq!(w.committed()[&1][0], 8);
        if let Some(said) = said.into_inner() {
            asked += 1;
            assert!(matches!(said, Err(Stop::Restart)), "8, 13, 8: {said:?}");
            let mut reader = reader.into_inner();
            reader.rollback_statement();
            assert_eq!(add(&w, &mut reader, -1, Some(4)).unwrap(), Outcome::Done);
        }
    }
    assert!(asked > 2, "only {asked}");
}

#[test]
fn two_that_find_too_little_do_not_wait_for_each_other() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        let [mut a, mut b, mut c] = [0; 3].map(|_| w.begin(level, true));
        assert_eq!(add(&w, &mut a, -5, None).unwrap(), Outcome::Done);
        // Only the end of `a` tells. Both give up the lock that lets deltas in, so one of them can have the row.
        assert_eq!(add(&w, &mut b, -4, None).unwrap(), Outcome::Exact);
        assert_eq!(add(&w, &mut c, -4, None).unwrap(), Outcome::Exact);
        drop(a);
        set(&w, &mut b, 4).unwrap();
        c.begin_statement().unwrap();
        let blocked = c.update(&w.stock, &key(1), &row(1, 4, 0, 0));
        assert!(matches!(blocked, Err(Stop::Blocked)), "{level:?}");
        c.rollback_statement();
        b.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 4);
    }
}

/// Neither can give up its lock, because it has deltas: the second that waits is told.
#[test]
fn of_two_with_deltas_that_want_more_one_is_a_deadlock() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        let [mut a, mut b] = [0; 2].map(|_| w.begin(level, true));
        for t in [&mut a, &mut b] {
            assert_eq!(add(&w, t, -3, None).unwrap(), Outcome::Done);
        }
        for t in [&mut a, &mut b] {
            assert_eq!(add(&w, t, -3, None).unwrap(), Outcome::Exact);
        }
        let blocked = set(&w, &mut a, 2);
        assert!(matches!(blocked, Err(Stop::Blocked)), "{level:?}");
        a.rollback_statement();
        let _wait = a.take_wait();
        let told = set(&w, &mut b, 2).unwrap_err();
        let code = told.error().expect("an error").code();
        assert_eq!(code, SqlState::DEADLOCK_DETECTED, "{level:?}");
        drop(b);
        assert_eq!(add(&w, &mut a, -3, None).unwrap(), Outcome::Done);
        a.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 2, "{level:?}");
    }
}

/// A statement that has waited and then finds too little has done nothing to the row, so it keeps no other away.
#[test]
fn a_refusal_leaves_no_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        let [mut a, mut b] = [0; 2].map(|_| w.begin(level, true));
        assert_eq!(add(&w, &mut a, -7, None).unwrap(), Outcome::Done);
        // As SQL goes on: only the end of `a` decides.
        b.begin_statement().unwrap();
        read_key(&mut b, &w, 1).unwrap();
        let looked_at = txn::column_set(&[0]);
        let delta = [take(QTY, -3, Some(3))];
        let asked = b.add_to(&w.stock, &key(1), &delta, looked_at).unwrap();
        assert_eq!(asked, Outcome::Exact);
        let policy = WaitPolicy::Wait;
        let blocked = b.lock_row(&w.stock, &key(1), LockMode::NoKeyUpdate, policy);
        assert!(matches!(blocked, Err(Stop::Blocked)), "{level:?}");
        b.rollback_statement();
        let _wait = b.take_wait();
        a.commit(&w.order).unwrap();
        assert_eq!(add(&w, &mut b, -3, Some(3)).unwrap(), Outcome::Refused);
        // `b` is open still.
        let mut c = w.begin(Isolation::ReadCommitted, true);
        assert_eq!(add(&w, &mut c, 1, None).unwrap(), Outcome::Done);
        c.commit(&w.order).unwrap();
        let mut c = w.begin(Isolation::ReadCommitted, true);
        run(&mut c, |t| t.delete(&w.stock, &key(1))).unwrap();
        c.commit(&w.order).unwrap();
        assert!(!w.committed().contains_key(&1), "{level:?}");
    }
}

/// Of several guards that were refused, the one that needed least says what the others say.
#[test]
fn of_several_refusals_the_least_counts() {
    let _alone = ONE_AT_A_TIME.lock();
    for needs in [[20, 12], [12, 20], [12, 12]] {
        let ended = |meanwhile: i64| {
            let w = World::new();
            let mut t = w.begin(Isolation::Serializable, true);
            for need in needs {
                let asked = add(&w, &mut t, -1, Some(need)).unwrap();
                assert_eq!(asked, Outcome::Refused);
            }
            add_alone(&w, meanwhile);
            let note = [(3, Value::Int8(1))];
            run(&mut t, |t| t.update_columns(&w.stock, &key(2), &note)).unwrap();
            t.commit(&w.order).map(drop).map_err(|e| e.code())
        };
        assert_eq!(ended(3), Ok(()), "{needs:?}");
        let lost = Err(SqlState::SERIALIZATION_FAILURE);
        assert_eq!(ended(4), lost, "{needs:?}");
    }
}

/// What a refused guard has read is its answer: a change that leaves it is no conflict, one that does not is 40001.
#[test]
fn a_refusal_is_certified_by_its_bound() {
    let _alone = ONE_AT_A_TIME.lock();
    let modes = [Mode::Escrow, Mode::Rows];
    for (mode, spread) in modes.into_iter().flat_map(|m| [(m, false), (m, true)]) {
        let ended = |meanwhile: i64| {
            let w = World::of(mode);
            if spread {
                records(&w, 1, 3);
            }
            let mut t = w.begin(Isolation::Serializable, true);
            assert_eq!(add(&w, &mut t, -1, Some(12)).unwrap(), Outcome::Refused);
            add_alone(&w, meanwhile);
            let other = row(2, 8, 0, 7);
            run(&mut t, |t| {
                read(t, &w, 2)?;
                t.update(&w.stock, &key(2), &other)
            })
            .unwrap();
            t.commit(&w.order).map_err(|e| e.code())
        };
        assert!(ended(-3).is_ok() && ended(3).is_ok(), "{mode:?} {spread}");
        let lost = Err(SqlState::SERIALIZATION_FAILURE);
        assert_eq!(ended(4).map(drop), lost, "{mode:?} {spread}");
    }
}

/// The same for a scan with a condition: a value that passes it neither before nor after leaves its answer.
#[test]
fn a_condition_on_sums_is_certified_by_its_answer() {
    let _alone = ONE_AT_A_TIME.lock();
    struct AtLeast(i64);
    impl txn::RowFilter for AtLeast {
        fn takes(&self, row: base::RowRef<'_>) -> bool {
            row.get(QTY).as_i64().is_none_or(|q| q >= self.0)
        }
    }
    for (least, meanwhile, ok) in [
        (12, -3, true),
        (12, 3, true),
        (12, 4, false),
        (8, -1, false),
    ] {
        let w = World::new();
        records(&w, 1, 3);
        let mut t = w.begin(Isolation::Serializable, true);
        let all = base::KeyRange::all();
        let scan = txn::Scan::new(txn::Access::Primary, all, txn::Direction::Forward);
        let mut scan = scan
            .of_columns(&[0, QTY as u16])
            .filtered_by(Arc::new(AtLeast(least)));
        run(&mut t, |t| {
            t.scan(&w.stock, &mut scan, 9, &mut |_, _| Ok(()))
        })
        .unwrap();
        add_alone(&w, meanwhile);
        run(&mut t, |t| t.insert(&w.stock, &row(3, 1, 0, 0))).unwrap();
        assert_eq!(t.commit(&w.order).is_ok(), ok, "{least} {meanwhile}");
    }
}

#[test]
fn a_guard_says_of_the_snapshot_what_it_says_of_now() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        for spread in [false, true] {
            // Eight at the snapshot, three now.
            let sold = |reads: i64| {
                let w = World::new();
                if spread {
                    records(&w, 1, 3);
                }
                let mut t = w.begin(level, true);
                run(&mut t, |t| read(t, &w, reads)).unwrap();
                add_alone(&w, -5);
                let said = add(&w, &mut t, -1, Some(5));
                (w, t, said)
            };
            // It has read the other row only: the snapshot moves, and both say too little.
            let (w, t, said) = sold(2);
            assert_eq!(said.unwrap(), Outcome::Refused, "{level:?} {spread}");
            t.commit(&w.order).unwrap();
            assert_eq!(w.committed()[&1][0], 3);
            // It has read the value: no snapshot has what was read and what is.
            let (_, _, said) = sold(1);
            let Err(Stop::Error(e)) = said else {
                panic!("{level:?} {spread}: {said:?}");
            };
            assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
        }
    }
}

/// A guard that let a statement through has to hold where the snapshot moves to: what is read there is read beside it.
#[test]
fn a_snapshot_does_not_move_over_a_guard() {
    let _alone = ONE_AT_A_TIME.lock();
    for (taken, spread) in [(1, false), (1, true), (5, false), (5, true)] {
        let w = World::new();
        if spread {
            records(&w, 1, 3);
        }
        let mut t = w.begin(Isolation::RepeatableRead, true);
        assert_eq!(add(&w, &mut t, -1, Some(5)).unwrap(), Outcome::Done);
        let mut other = w.begin(Isolation::RepeatableRead, true);
        assert_eq!(add(&w, &mut other, -taken, None).unwrap(), Outcome::Done);
        let note = |n| [(3, Value::Int8(n))];
        let written = run(&mut other, |t| {
            t.update_columns(&w.stock, &key(2), &note(1))
        });
        written.unwrap();
        other.commit(&w.order).unwrap();
        // The row has changed, so the snapshot moves: to seven, or to three.
        let written = run(&mut t, |t| t.update_columns(&w.stock, &key(2), &note(2)));
        match written {
            Ok(_) => assert_eq!(taken, 1, "the guard needed five"),
            Err(Stop::Error(e)) => {
                assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
                assert_eq!(taken, 5);
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_serializable_guard_stays_whole() {
    let _alone = ONE_AT_A_TIME.lock();
    for (level, left) in LEVELS.into_iter().zip([7, 7, 3]) {
        let w = World::new();
        let mut t = w.begin(level, true);
        assert_eq!(add(&w, &mut t, -1, Some(5)).unwrap(), Outcome::Done);
        let held = w.manager.reservations();
        assert_eq!(held[0].down, 8 - i128::from(left), "{level:?}");
        let mut other = w.begin(Isolation::ReadCommitted, true);
        assert_eq!(add(&w, &mut other, -left, None).unwrap(), Outcome::Done);
        assert_eq!(add(&w, &mut other, -1, None).unwrap(), Outcome::Exact);
        other.commit(&w.order).unwrap();
        t.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 7 - left);
    }
}

/// A savepoint undoes the delta and not what its guard has said: exact writes of others wait still, also after a refusal.
#[test]
fn a_guard_that_was_told_is_kept_without_its_delta() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = World::new();
    let mut t = w.begin(Isolation::Serializable, true);
    t.begin_statement().unwrap();
    t.savepoint("s");
    assert_eq!(add(&w, &mut t, -1, Some(6)).unwrap(), Outcome::Done);
    t.rollback_to_savepoint("s").unwrap();
    assert_eq!(add(&w, &mut t, -1, Some(100)).unwrap(), Outcome::Refused);
    let mut other = w.begin(Isolation::ReadCommitted, true);
    let blocked = set(&w, &mut other, 0);
    assert!(matches!(blocked, Err(Stop::Blocked)), "{blocked:?}");
}

/// The same where the snapshot moves: not to where the guard that was told does not hold.
#[test]
fn a_guard_that_was_told_holds_where_the_snapshot_moves_to() {
    let _alone = ONE_AT_A_TIME.lock();
    let modes = [Mode::Escrow, Mode::Rows];
    for (mode, taken) in modes.into_iter().flat_map(|m| [(m, 1), (m, 5)]) {
        let w = World::of(mode);
        let mut t = w.begin(Isolation::RepeatableRead, true);
        run(&mut t, |t| read_key(t, &w, 2)).unwrap();
        t.savepoint("s");
        assert_eq!(add(&w, &mut t, 1, Some(5)).unwrap(), Outcome::Done);
        t.rollback_to_savepoint("s").unwrap();
        if mode == Mode::Rows {
            // The records that have proved it are given back.
            assert_eq!(add(&w, &mut t, 1, Some(100)).unwrap(), Outcome::Refused);
        }
        let mut other = w.begin(Isolation::RepeatableRead, true);
        assert_eq!(add(&w, &mut other, -taken, None).unwrap(), Outcome::Done);
        let note = |n| [(3, Value::Int8(n))];
        let written = run(&mut other, |t| {
            t.update_columns(&w.stock, &key(2), &note(1))
        });
        written.unwrap();
        other.commit(&w.order).unwrap();
        let written = run(&mut t, |t| t.update_columns(&w.stock, &key(2), &note(2)));
        let said = written.map_err(|stop| stop.error().map(|e| e.code()));
        let lost = Err(Some(SqlState::SERIALIZATION_FAILURE));
        let expected = if taken == 1 { Ok(true) } else { lost };
        assert_eq!(said, expected, "{mode:?} {taken}");
    }
}

/// And at SERIALIZABLE it is certified, where no lock and no reservation keeps it.
#[test]
fn a_guard_that_was_told_is_certified() {
    let _alone = ONE_AT_A_TIME.lock();
    for (taken, ok) in [(1, true), (4, false)] {
        let w = World::of(Mode::Rows);
        let mut t = w.begin(Isolation::Serializable, true);
        run(&mut t, |t| read_key(t, &w, 2)).unwrap();
        t.savepoint("s");
        assert_eq!(add(&w, &mut t, -1, Some(5)).unwrap(), Outcome::Done);
        t.rollback_to_savepoint("s").unwrap();
        assert_eq!(add(&w, &mut t, -1, Some(100)).unwrap(), Outcome::Refused);
        add_alone(&w, -taken);
        let note = [(3, Value::Int8(1))];
        run(&mut t, |t| t.update_columns(&w.stock, &key(2), &note)).unwrap();
        assert_eq!(t.commit(&w.order).is_ok(), ok, "{taken}");
    }
}

/// An exact write that a savepoint undoes keeps no others away. What its transaction has reserved, before it or since, keeps off exact writes alone.
#[test]
fn an_exact_write_that_is_undone_leaves_no_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    for (level, mode) in LEVELS
        .into_iter()
        .flat_map(|l| [(l, Mode::Escrow), (l, Mode::Rows)])
    {
        for (before, since) in [(false, false), (true, false), (false, true)] {
            let w = World::of(mode);
            let mut t = w.begin(level, true);
            t.begin_statement().unwrap();
            if before {
                assert_eq!(add(&w, &mut t, -1, None).unwrap(), Outcome::Done);
            }
            t.savepoint("s");
            if since {
                assert_eq!(add(&w, &mut t, -1, None).unwrap(), Outcome::Done);
            }
            set(&w, &mut t, 3).unwrap();
            t.rollback_to_savepoint("s").unwrap();
            // In the mode `rows` the record is locked as long as the delta would be.
            if mode == Mode::Escrow || !before && !since {
                add_alone(&w, 1);
            }
            let mut other = w.begin(Isolation::ReadCommitted, true);
            let said = set(&w, &mut other, 5);
            let (held, what) = (before || since, (level, mode, before, since));
            assert_eq!(said.is_err(), held, "{what:?}: {said:?}");
            if held {
                assert!(matches!(said, Err(Stop::Blocked)), "{what:?}: {said:?}");
                other.rollback_statement();
            } else {
                other.commit(&w.order).unwrap();
            }
        }
    }
}

/// Guards that are kept do not add up: what is left for one is left for the others, too, with a lower bound and without one.
#[test]
fn guards_of_several_hold_side_by_side() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = World::new();
    let mut open: Vec<Txn> = (0..4)
        .map(|_| w.begin(Isolation::Serializable, true))
        .collect();
    let said: Vec<Outcome> = open
        .iter_mut()
        .map(|t| {
            let free = [take(2, -1, Some(-9))];
            let beside = run(t, |t| t.add_to(&w.stock, &key(1), &free, 0));
            assert_eq!(beside.unwrap(), Outcome::Done);
            add(&w, t, -1, Some(6)).unwrap()
        })
        .collect();
    // The fourth would be let through at five.
    let done = Outcome::Done;
    assert_eq!(said, [done, done, done, Outcome::Exact]);
    for t in open {
        t.commit(&w.order).unwrap();
    }
    assert_eq!(w.committed()[&1], [5, -4, 0]);
    assert_eq!(w.manager.reservations(), []);
}

#[test]
fn what_a_delta_lives_off_is_shown_with_it() {
    let _alone = ONE_AT_A_TIME.lock();
    for spread in [false, true] {
        let w = World::new();
        if spread {
            records(&w, 1, 3);
        }
        let mut t = w.begin(Isolation::ReadCommitted, true);
        run(&mut t, |t| read_key(t, &w, 2)).unwrap();
        assert_eq!(add(&w, &mut t, -1, Some(1)).unwrap(), Outcome::Done);
        assert!(!t.leaked_newer_state(), "its snapshot says so, too");
        // A commit on its way keeps all later ones from being installed.
        let (_, ticket) = txn::CommitOrder::begin(&w.order).unwrap();
        add_alone(&w, 10);
        assert_eq!(add(&w, &mut t, -14, Some(15)).unwrap(), Outcome::Done);
        // That there were 15 is told. The end of the transaction waits for the ten, also where it ends without a commit.
        assert!(t.leaked_newer_state());
        let seen = std::thread::scope(|s| {
            let next = s.spawn(|| run(&mut t, |t| read(t, &w, 1)).unwrap());
            txn::CommitOrder::abort(&w.order, ticket);
            next.join().unwrap()
        });
        // The snapshot of before the ten would show less than nothing.
        assert_eq!(seen, Some([3, 0, 0]));
        t.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 3);
    }
}

#[test]
fn own_deltas_count_for_guards_and_bounds() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        let mut t = w.begin(level, true);
        assert_eq!(add(&w, &mut t, -8, Some(8)).unwrap(), Outcome::Done);
        assert_eq!(add(&w, &mut t, -1, Some(1)).unwrap(), Outcome::Refused);
        assert_eq!(add(&w, &mut t, 5, None).unwrap(), Outcome::Done);
        assert_eq!(add(&w, &mut t, -5, Some(5)).unwrap(), Outcome::Done);
        // What it holds is what it may come to take: 8, and not 13.
        assert_eq!(w.manager.reservations()[0].down, 8);
        assert_eq!(add(&w, &mut t, MOST, None).unwrap(), Outcome::Done);
        assert_eq!(add(&w, &mut t, 1, None).unwrap(), Outcome::Exact);
        t.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], MOST, "{level:?}");
        assert_eq!(w.manager.reservations(), []);
    }
}

#[test]
fn deltas_without_waiting_lock_the_row() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = World::new();
    let mut library = w.begin(Isolation::RepeatableRead, false);
    assert_eq!(add(&w, &mut library, -1, None).unwrap(), Outcome::Done);
    // A delta beside it, but no delete.
    add_alone(&w, -1);
    let mut other = w.begin(Isolation::ReadCommitted, true);
    other.begin_statement().unwrap();
    let blocked = other.delete(&w.stock, &key(1));
    assert!(matches!(blocked, Err(Stop::Blocked)), "{blocked:?}");
    other.rollback_statement();
    drop(other);
    library.commit(&w.order).unwrap();
    assert_eq!(w.committed()[&1][0], 6);
    // And the other way round it fails at once, since it waits for nothing.
    let mut writer = w.begin(Isolation::ReadCommitted, true);
    set(&w, &mut writer, 5).unwrap();
    let mut library = w.begin(Isolation::RepeatableRead, false);
    let lost = add(&w, &mut library, -1, None);
    let Err(Stop::Error(e)) = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
}

/// What gives records goes on beside deltas and waits for no exact write; what takes them away waits for neither.
#[test]
fn workers_give_way() {
    let _alone = ONE_AT_A_TIME.lock();
    for mode in [Mode::Escrow, Mode::Rows] {
        let w = World::of(mode);
        let step = |to: u16| {
            let mut t = w.begin(Isolation::ReadCommitted, true);
            t.begin_statement().unwrap();
            let more = t.spread_value(&w.stock, &key(1), QTY, to).unwrap();
            let did = more || t.gather_value(&w.stock, &key(1), QTY, to).unwrap();
            did && t.commit(&w.order).is_ok()
        };
        assert!(step(2));
        let balance = || {
            let moves = [txn::Move {
                from: 0,
                to: 1,
                amount: 1,
            }];
            let mut t = w.begin(Isolation::ReadCommitted, true);
            t.begin_statement().unwrap();
            let did = t.balance_value(&w.stock, &key(1), QTY, &moves).unwrap();
            did && t.commit(&w.order).is_ok()
        };
        assert_eq!(balance(), mode == Mode::Rows);
        let mut t = w.begin(Isolation::ReadCommitted, true);
        assert_eq!(add(&w, &mut t, -1, None).unwrap(), Outcome::Done);
        assert!(step(4), "{mode:?}: more records beside a delta");
        assert!(!step(1), "{mode:?}: fewer records beside a delta");
        t.commit(&w.order).unwrap();
        let mut t = w.begin(Isolation::ReadCommitted, true);
        set(&w, &mut t, 5).unwrap();
        for to in [1, 8] {
            assert!(!step(to), "{mode:?}: {to} records beside an exact write");
        }
        assert!(!balance(), "{mode:?}: a move beside an exact write");
        t.commit(&w.order).unwrap();
        assert_eq!(w.committed()[&1][0], 5, "{mode:?}");
    }
}

#[test]
fn an_exact_write_looks_at_every_record() {
    let _alone = ONE_AT_A_TIME.lock();
    for (locking, level) in [
        (false, Isolation::RepeatableRead),
        (false, Isolation::Serializable),
        (true, Isolation::RepeatableRead),
        (true, Isolation::Serializable),
    ] {
        for round in 0..6 {
            let w = World::new();
            records(&w, 1, 5);
            let mut t = w.begin(level, locking);
            let before = run(&mut t, |t| read(t, &w, 1)).unwrap().unwrap()[0];
            // It goes to one of five records; the row stays as it is.
            add_alone(&w, 1 + round);
            let written = set(&w, &mut t, before - 1);
            let ended = written.and_then(|()| t.commit(&w.order).map_err(Stop::Error));
            let Err(Stop::Error(e)) = ended else {
                panic!("{level:?} {locking}: a delta is lost");
            };
            assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
            assert_eq!(w.committed()[&1][0], 9 + round);
        }
    }
}

#[test]
fn what_was_looked_at_is_compared_after_the_lock() {
    let _alone = ONE_AT_A_TIME.lock();
    for level in LEVELS {
        let w = World::new();
        let mut t = w.begin(level, true);
        t.begin_statement().unwrap();
        // UPDATE … WHERE note = 0, which another transaction changes before the lock is granted.
        let columns = txn::column_set(&[3]);
        let note = t.get_columns(&w.stock, &key(1), columns, |r| r.get(3).as_i64());
        assert_eq!(note.unwrap(), Some(Some(0)));
        let mut other = w.begin(Isolation::ReadCommitted, true);
        let changed = [(3, Value::Int8(1))];
        run(&mut other, |t| {
            t.update_columns(&w.stock, &key(1), &changed)
        })
        .unwrap();
        other.commit(&w.order).unwrap();
        let said = t.add_to(&w.stock, &key(1), &[take(QTY, -1, None)], columns);
        assert!(matches!(said, Err(Stop::Restart)), "{level:?}: {said:?}");
        assert_eq!(w.manager.reservations(), []);
    }
}

/// A delta looks at its row's key only. That is certified by the row's being there, whatever else of it has changed.
#[test]
fn a_row_that_was_found_by_its_key_has_to_be_there() {
    let _alone = ONE_AT_A_TIME.lock();
    let w = World::new();
    let found = |change: &mut dyn FnMut(&mut Txn) -> Result<()>| {
        let mut t = w.begin(Isolation::Serializable, true);
        run(&mut t, |t| read_key(t, &w, 1)).unwrap();
        // It writes elsewhere, so that it has a position.
        let note = [(3, Value::Int8(1))];
        run(&mut t, |t| t.update_columns(&w.stock, &key(2), &note)).unwrap();
        let mut other = w.begin(Isolation::ReadCommitted, true);
        run(&mut other, change).unwrap();
        other.commit(&w.order).unwrap();
        t.commit(&w.order).map_err(|e| e.code())
    };
    let note = [(3, Value::Int8(7))];
    let changed = found(&mut |t| t.update_columns(&w.stock, &key(1), &note).map(drop));
    assert!(changed.is_ok());
    let gone = found(&mut |t| t.delete(&w.stock, &key(1)).map(drop));
    assert_eq!(gone.err(), Some(SqlState::SERIALIZATION_FAILURE));
}
