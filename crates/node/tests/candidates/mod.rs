//! A primary certifies candidates: each once, whatever is repeated.

use super::*;
use base::Candidate;
use node::Verdict;
use parking_lot::Mutex;

/// Planted faults are the process's, and tests run on threads.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A transaction that adds one to the value of row 0, as it travels.
fn add_one(node: &Node, h: &TableHandle, number: u64) -> Candidate {
    let mut t = begin(node, Isolation::RepeatableRead, false);
    let v = value(&mut t, h, 0).unwrap();
    t.update(h, &key(0), &row(0, v + 1)).unwrap();
    t.end_statement().unwrap();
    let bytes = t.candidate(number).unwrap().encode();
    Candidate::decode(&bytes).unwrap()
}

fn committed(verdict: base::Result<Verdict>) -> base::CommitWait {
    match verdict.unwrap() {
        Verdict::Committed(held) => held,
        Verdict::Running => panic!("one runs at a time"),
    }
}

fn now(node: &Node, h: &TableHandle) -> i64 {
    value(&mut begin(node, Isolation::Serializable, false), h, 0).unwrap()
}

#[test]
fn a_repeated_candidate_is_answered_again_and_runs_once() {
    let _alone = ONE_AT_A_TIME.lock();
    let (_dir, node, h) = with_rows(1);
    let c = add_one(&node, &h, 71);
    let held = committed(node.certify(&c));
    assert_eq!(now(&node, &h), 11);
    assert_eq!(committed(node.certify(&c)).position(), held.position());
    assert_eq!(now(&node, &h), 11);
    node.flush_here(true);
    futures::executor::block_on(node.published(held));
    let at = node.outcome(71, Position::ZERO);
    assert_eq!(at, node::Outcome::Committed(held.position()));
    // One that lost may be sent again by its number: it has not committed.
    let (late, first) = (add_one(&node, &h, 72), add_one(&node, &h, 73));
    committed(node.certify(&first));
    for _ in 0..2 {
        let lost = node.certify(&late).unwrap_err();
        assert_eq!(lost.code(), SqlState::SERIALIZATION_FAILURE);
    }
    assert_eq!(now(&node, &h), 12);
}

/// An insert's repetition meets its own row: without the number it would be told that the key is taken.
#[cfg(feature = "faults")]
#[test]
fn a_candidate_that_runs_again_is_found() {
    let _alone = ONE_AT_A_TIME.lock();
    let (_dir, node, h) = with_rows(1);
    let c = add_one(&node, &h, 71);
    let held = committed(node.certify(&c));
    env::fault::plant("site.number_again", true);
    let again = node.certify(&c);
    env::fault::plant("site.number_again", false);
    let same = matches!(again, Ok(Verdict::Committed(h)) if h.position() == held.position());
    assert!(!same, "the fault is not seen");
}

#[test]
fn a_candidate_whose_outcome_was_asked_for_does_not_commit() {
    let _alone = ONE_AT_A_TIME.lock();
    let (_dir, node, h) = with_rows(1);
    let c = add_one(&node, &h, 81);
    let asked = node.outcome(81, c.footprint.snapshot);
    assert_eq!(asked, node::Outcome::Aborted);
    let e = node.certify(&c).unwrap_err();
    assert_eq!(e.code(), SqlState::SERIALIZATION_FAILURE);
    assert_eq!(now(&node, &h), 10);
}

/// Recovery keeps no older versions and no older schema; but what has committed is known still.
#[test]
fn a_restart_keeps_the_verdicts_and_refuses_what_is_older() {
    let _alone = ONE_AT_A_TIME.lock();
    let (dir, node, h) = with_rows(1);
    let (c, d) = (add_one(&node, &h, 91), add_one(&node, &h, 92));
    let held = committed(node.certify(&c));
    drop(node);
    let node = open(dir.path());
    let h = handle(&node, 20000);
    assert_eq!(committed(node.certify(&c)).position(), held.position());
    let old = node.certify(&d).unwrap_err();
    assert_eq!(old.code(), SqlState::SERIALIZATION_FAILURE);
    committed(node.certify(&add_one(&node, &h, 93)));
    assert_eq!(now(&node, &h), 12);
}

#[test]
fn a_node_that_has_handed_over_certifies_nothing() {
    let _alone = ONE_AT_A_TIME.lock();
    let (_dir, node, h) = with_rows(1);
    let c = add_one(&node, &h, 95);
    let heir = node.shipping().join("heir", true, "", Position::ZERO, 0);
    node.hand_over(heir, "heir").unwrap();
    let e = node.certify(&c).unwrap_err();
    assert_eq!(e.code(), SqlState::CANNOT_CONNECT_NOW);
}
