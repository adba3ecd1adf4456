//! Candidates of a site that change split values: what their statements had found is certified, though the site's row locks hold there only.

use super::*;
use txn::{LockMode, WaitPolicy, column_set};

/// What a transaction of a site comes to, as a candidate.
fn at_site(w: &World, level: Isolation, f: impl Fn(&mut Txn) -> Result<()>) -> Vec<u8> {
    w.manager.set_standby(true);
    w.manager.set_site(true);
    let mut t = w.begin(level, true);
    run(&mut t, f).unwrap();
    let made = t.candidate(1).unwrap().encode();
    drop(t);
    w.manager.set_standby(false);
    made
}

fn certify(w: &World, candidate: &[u8]) -> base::Result<Position> {
    let c = Candidate::decode(candidate).unwrap();
    w.manager.adopt(&c)?.commit(&w.order)
}

/// Another transaction commits at the certifier.
fn commits(w: &World, f: impl Fn(&mut Txn) -> Result<()>) {
    let mut t = w.begin(Isolation::ReadCommitted, true);
    run(&mut t, f).unwrap();
    t.commit(&w.order).unwrap();
}

fn add(w: &World, t: &mut Txn, column: usize, amount: i64, looked_at: u64) -> Result<()> {
    let delta = [take(column, amount, None)];
    let done = t.add_to(&w.stock, &key(1), &delta, looked_at)?;
    assert_eq!(done, Outcome::Done);
    Ok(())
}

fn set_note(w: &World, t: &mut Txn, id: i64, note: i64) -> Result<()> {
    read(t, w, id)?;
    t.update_columns(&w.stock, &key(id), &[(3, Value::Int8(note))])
        .map(drop)
}

/// `UPDATE stock SET qty = qty - 1 WHERE id = 1 AND note = 0` at a site while the primary does something else.
fn sold_while(between: impl Fn(&World)) -> base::Result<Position> {
    let w = World::new();
    let c = at_site(&w, Isolation::ReadCommitted, |t| {
        add(&w, t, QTY, -1, column_set(&[3]))
    });
    between(&w);
    let done = certify(&w, &c);
    assert_eq!(w.manager.reservations(), []);
    done
}

#[test]
fn what_a_delta_was_found_by_holds_where_it_is_merged() {
    let _alone = ONE_AT_A_TIME.lock();
    let closes = |w: &World| commits(w, |t| set_note(w, t, 1, 7));
    let e = sold_while(closes).unwrap_err();
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
    // What the statement did not look at may change, the value itself included.
    sold_while(|w| commits(w, |t| add(w, t, QTY, -2, 0))).unwrap();
    sold_while(|w| commits(w, |t| add(w, t, 2, 1, 0))).unwrap();
    sold_while(|w| commits(w, |t| set_note(w, t, 2, 7))).unwrap();
    sold_while(|w| records(w, 1, 3)).unwrap();
    // There and back again: the statement would find it still.
    sold_while(|w| {
        commits(w, |t| set_note(w, t, 1, 7));
        commits(w, |t| set_note(w, t, 1, 0));
    })
    .unwrap();
}

#[test]
fn a_delta_may_be_found_by_another_split_value() {
    let _alone = ONE_AT_A_TIME.lock();
    for further in [0, 3] {
        let sold = |more: i64| {
            let w = World::new();
            if further > 0 {
                records(&w, 1, further);
            }
            let c = at_site(&w, Isolation::ReadCommitted, |t| {
                add(&w, t, 2, 1, column_set(&[QTY as u16]))
            });
            commits(&w, |t| add(&w, t, QTY, more, 0));
            commits(&w, |t| add(&w, t, QTY, -1, 0));
            certify(&w, &c)
        };
        assert!(sold(2).is_err(), "{further} further records");
        sold(1).unwrap();
    }
}

#[cfg(feature = "faults")]
#[test]
fn deltas_that_were_found_by_nothing_are_found() {
    let _alone = ONE_AT_A_TIME.lock();
    env::fault::plant("candidate.found_by_nothing", true);
    let done = sold_while(|w| commits(w, |t| set_note(w, t, 1, 7)));
    env::fault::plant("candidate.found_by_nothing", false);
    done.expect("the fault lets it commit");
}

/// What may have looked at a value with further records, below SERIALIZABLE. Whether it commits while the primary moves the value.
fn looked(level: Isolation, what: impl Fn(&World, &mut Txn) -> Result<()>, moves: bool) -> bool {
    let w = World::new();
    records(&w, 1, 3);
    let c = at_site(&w, level, |t| what(&w, t));
    if moves {
        commits(&w, |t| add(&w, t, QTY, -1, 0));
    }
    certify(&w, &c).is_ok()
}

type Looks = fn(&World, &mut Txn) -> Result<()>;

const LOOKS: [(Isolation, Looks); 4] = [
    // SELECT qty, and then qty - 1.
    (Isolation::RepeatableRead, |w, t| {
        read(t, w, 1)?;
        add(w, t, QTY, -1, 0)
    }),
    // SELECT FOR UPDATE, and then another row.
    (Isolation::RepeatableRead, |w, t| {
        read(t, w, 1)?;
        t.lock_row(&w.stock, &key(1), LockMode::Update, WaitPolicy::Wait)?;
        set_note(w, t, 2, 1)
    }),
    // SET note = 1 WHERE qty > 5.
    (Isolation::RepeatableRead, |w, t| set_note(w, t, 1, 1)),
    (Isolation::ReadCommitted, |w, t| set_note(w, t, 1, 1)),
];

#[test]
fn a_value_with_further_records_is_certified_whole() {
    let _alone = ONE_AT_A_TIME.lock();
    for (n, (level, look)) in LOOKS.into_iter().enumerate() {
        assert!(looked(level, look, false), "{n}: nothing is in the way");
        assert!(!looked(level, look, true), "{n}: the value has changed");
    }
    // Deltas that nothing was read of commit.
    let blind: Looks = |w, t| add(w, t, QTY, -1, 0);
    assert!(looked(Isolation::RepeatableRead, blind, true));
}

#[cfg(feature = "faults")]
#[test]
fn values_that_are_certified_by_their_row_alone_are_found() {
    let _alone = ONE_AT_A_TIME.lock();
    env::fault::plant("candidate.no_records", true);
    let done = LOOKS.map(|(level, look)| looked(level, look, true));
    env::fault::plant("candidate.no_records", false);
    assert_eq!(done, [true; 4]);
}
