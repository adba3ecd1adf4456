//! The decider's answers against a count of all acknowledgements; and the replicas that commits wait for.

use super::*;
use proptest::prelude::*;

fn p(n: u32) -> Position {
    Position::new(1, n)
}

fn acked(received: u32, persisted: u32, visible: u32) -> Acked {
    Acked {
        term: 1,
        received: p(received),
        persisted: p(persisted),
        visible: p(visible),
    }
}

#[test]
fn nobody_is_waited_for_unless_asked() {
    let mut q = Quorum::new(0);
    assert_eq!(q.levels(p(5)).applied, p(5));
    q.acked(1, "r1", acked(4, 3, 2));
    let all = q.levels(p(5));
    assert_eq!((all.decided, all.written, all.applied), (p(5), p(5), p(2)));
    q.left(1);
    assert_eq!(q.levels(p(5)).applied, p(5));
}

#[test]
fn a_quorum_decides() {
    let mut q = Quorum::new(2);
    assert_eq!(q.levels(p(9)).decided, Position::ZERO);
    q.acked(1, "r1", acked(9, 8, 7));
    assert_eq!(q.levels(p(9)).decided, Position::ZERO);
    q.acked(2, "r2", acked(6, 5, 4));
    q.acked(3, "r3", acked(4, 4, 1));
    let now = q.levels(p(9));
    assert_eq!((now.written, now.decided, now.applied), (p(6), p(5), p(4)));
    assert_eq!(q.levels(p(3)).decided, p(3), "flushed here, too");
    q.left(1);
    assert_eq!(q.levels(p(9)).decided, p(4));
    q.begin_term(2);
    q.acked(2, "r2", acked(9, 9, 9));
    assert_eq!(q.levels(p(9)).decided, Position::ZERO, "of an older term");
}

/// A replica that was cut off without a word comes back over another connection: it is one replica, not two.
#[test]
fn a_replica_counts_once_however_often_it_connects() {
    let mut q = Quorum::new(2);
    q.acked(1, "a", acked(5, 5, 5));
    q.acked(2, "a", acked(5, 5, 5));
    assert_eq!(q.levels(p(9)), Levels::default());
    q.acked(3, "b", acked(4, 4, 4));
    assert_eq!(q.levels(p(9)).decided, p(4));
    // The older connection says nothing more that counts, and its end takes nothing away.
    q.acked(2, "a", acked(7, 7, 7));
    q.acked(3, "b", acked(8, 8, 8));
    q.acked(1, "a", acked(9, 9, 9));
    assert_eq!(q.levels(p(9)).decided, p(7));
    q.left(1);
    assert_eq!(q.levels(p(9)).decided, p(7));
}

/// The copy beside the primary is quicker than the one across the ocean, until it stands still.
#[test]
fn one_that_is_late_again_and_again_is_not_waited_for_until_it_is_needed() {
    let mut q = Quorum::new(1);
    assert!(q.awaits(1) && q.awaits(2), "nothing is known of them");
    let both = |q: &mut Quorum, n| {
        q.acked(1, "near", acked(n, n, n));
        q.acked(2, "far", acked(n, n, n));
    };
    for n in 1..=LATE {
        assert!(q.awaits(2));
        both(&mut q, n);
    }
    assert!(q.awaits(1) && !q.awaits(2));
    // A word that says nothing new says nothing of this either.
    q.acked(2, "far", acked(LATE, LATE, LATE));
    assert!(!q.awaits(2));
    q.acked(2, "far", acked(LATE + 1, LATE + 1, 0));
    assert!(q.awaits(2), "the near one stands still");
    for n in LATE + 2..=3 * LATE {
        both(&mut q, n);
    }
    assert!(!q.awaits(2));
    q.left(1);
    assert!(q.awaits(2), "the near one is gone");
    q.want(0);
    assert!(!q.awaits(1) && !q.awaits(2), "no commit waits for any");
}

/// The first of two is never the one that decides, and is needed all the same.
#[test]
fn all_that_are_needed_are_waited_for() {
    let mut q = Quorum::new(2);
    for n in 1..=2 * LATE {
        q.acked(1, "a", acked(n, n, n));
        q.acked(2, "b", acked(n, n, n));
        q.acked(3, "c", acked(n, n, n));
    }
    assert!(q.awaits(1) && q.awaits(2) && !q.awaits(3));
}

/// What happens to a decider.
#[derive(Clone, Debug)]
enum Step {
    Acked(u64, Acked),
    Left(u64),
    Term(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let ack = (0u64..6, 0u64..4, 0u32..30, 0u32..30, 0u32..30);
    prop_oneof![
        9 => ack.prop_map(|(id, term, r, p, v)| Step::Acked(id, Acked { term, ..acked(r, p, v) })),
        2 => (0u64..6).prop_map(Step::Left),
        1 => (0u64..4).prop_map(Step::Term),
    ]
}

/// Connections 0 to 5 are of replicas 0 to 3.
fn name(connection: u64) -> String {
    format!("r{}", connection % 4)
}

/// All of the past, counted position by position: how many of those that follow now have said, since they came and in no older
/// term, that they have reached it. A replica's newest connection speaks for it.
fn counted(past: &[Step], wanted: usize, flushed: u32) -> [u32; 3] {
    let (mut term, mut said): (u64, Vec<(u64, Vec<Acked>)>) = (0, vec![]);
    for s in past {
        match s {
            Step::Term(t) => {
                term = term.max(*t);
                said.retain(|(_, acks)| acks.last().is_some_and(|a| a.term >= term));
            }
            Step::Left(id) => said.retain(|(i, _)| i != id),
            Step::Acked(_, a) if a.term < term => {}
            Step::Acked(id, a) => match said.iter_mut().find(|(i, _)| i == id) {
                Some((_, acks)) => acks.push(*a),
                None => said.push((*id, vec![*a])),
            },
        }
    }
    let reached = |of: fn(&Acked) -> Position, most: u32| {
        let has = |acks: &[Acked], n: u32| acks.iter().any(|a| of(a) >= p(n));
        let old = |id: u64| wanted > 0 && said.iter().any(|(i, _)| *i == id + 4);
        let enough = |n: &u32| {
            let have = said.iter().filter(|(i, acks)| !old(*i) && has(acks, *n));
            have.count() >= if wanted == 0 { said.len() } else { wanted }
        };
        (0..=most).filter(enough).max()
    };
    let level = |of| match wanted {
        0 => flushed,
        _ => reached(of, flushed).unwrap_or(0),
    };
    let decided = level(|a| a.persisted);
    let applied = reached(|a| a.visible, decided).unwrap_or(0);
    [decided, level(|a| a.received), applied]
}

proptest! {
    #[test]
    fn equals_the_count(wanted in 0usize..4, flushed in 0u32..40, steps in prop::collection::vec(step(), 0..40)) {
        let mut q = Quorum::new(wanted);
        let mut term = 0;
        for s in &steps {
            match s {
                Step::Acked(id, a) => q.acked(*id, &name(*id), *a),
                Step::Left(id) => q.left(*id),
                Step::Term(t) => {
                    term = term.max(*t);
                    q.begin_term(term);
                }
            }
        }
        let now = q.levels(p(flushed));
        let [decided, written, applied] = counted(&steps, wanted, flushed);
        // Epoch 1 begins at p(0). Position zero means that no replica has it yet.
        let at = |n: u32, got: Position| got == p(n) || (n == 0 && got == Position::ZERO);
        prop_assert!(at(decided, now.decided), "{} {:?}", decided, now);
        prop_assert!(at(written, now.written), "{} {:?}", written, now);
        prop_assert!(at(applied, now.applied), "{} {:?}", applied, now);
        prop_assert!(now.applied <= now.decided && now.decided <= p(flushed));
    }
}
