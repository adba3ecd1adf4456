//! The decider of a fail-over, step by step: what stands in its way, and terms that were drawn by hand.

use cluster::failover::stands_in_the_way;
use cluster::{
    Action, Answer, Before, Catalogue, Command, End, Failover, Kind, Member, NodeId, Obstacle,
    Phase, Terms,
};
use std::collections::BTreeSet;

/// The first leads; each commit is held by one replica.
fn catalogue(kinds: &[Kind]) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for (node, kind) in (1..).zip(kinds) {
        let member = Member {
            name: format!("n{node}"),
            address: format!("n{node}:1"),
            kind: *kind,
        };
        let command = match node {
            1 => Command::Found {
                node,
                member,
                term: 1,
            },
            _ => Command::Join { node, member },
        };
        catalogue.apply(&command).expect("taken");
    }
    let (term, by, change) = (1, 1, catalogue.change());
    let covered = Command::Covered { term, by, change };
    catalogue.apply(&covered).expect("taken");
    catalogue
}

fn set(nodes: &[NodeId]) -> BTreeSet<NodeId> {
    nodes.iter().copied().collect()
}

#[test]
fn what_stands_in_the_way_counts_only_members_that_are_reached() {
    use Kind::{Server, Witness};
    let three = catalogue(&[Server, Server, Server]);
    let all = set(&[1, 2, 3]);
    assert_eq!(stands_in_the_way(&three, &all, &all), None);
    let lost = stands_in_the_way(&three, &all, &set(&[1, 3]));
    assert_eq!(lost, Some(Obstacle::Votes { needed: 2, have: 1 }));
    let with_witness = catalogue(&[Server, Server, Witness]);
    assert_eq!(stands_in_the_way(&with_witness, &all, &all), None);
    // One vote of three copies stands elsewhere, and the fourth copy is needed all the same.
    let four = catalogue(&[Server, Server, Server, Server]);
    let lost = stands_in_the_way(&four, &all, &all);
    assert_eq!(lost, Some(Obstacle::Answers { needed: 3, have: 2 }));
}

#[test]
fn a_term_that_was_drawn_by_hand_is_overtaken() {
    use Kind::Server;
    let hand = 1 << 40;
    let mut catalogue = catalogue(&[Server, Server, Server]);
    let mut failover = Failover::elected(Terms::default(), 0, Before::default());
    let long = 10_000_000_000;
    let step = |failover: &mut Failover, catalogue: &mut Catalogue| {
        let actions = failover.tick(catalogue, long);
        for action in &actions {
            if let Action::Propose(command) = action {
                catalogue.apply(command).expect("in time");
            }
        }
        actions
    };
    failover.tick(&catalogue, 0);
    step(&mut failover, &mut catalogue);
    assert_eq!(
        catalogue.phase(),
        Some(Phase::Choosing { term: 2, before: 1 })
    );
    let asked = step(&mut failover, &mut catalogue);
    assert_eq!(asked.len(), 3, "{asked:?}");
    for node in 1..=3 {
        failover.answered(2, node, Answer::Later(hand));
    }
    step(&mut failover, &mut catalogue);
    let term = hand + 1;
    assert_eq!(catalogue.phase(), Some(Phase::Choosing { term, before: 1 }));
    // The old primary and one more would be enough; the third one was promoted by hand.
    for (node, began) in [(1, 1), (2, 1), (3, hand)] {
        step(&mut failover, &mut catalogue);
        assert_eq!(catalogue.phase(), Some(Phase::Choosing { term, before: 1 }));
        let end = End {
            term: began,
            position: 7,
        };
        failover.answered(term, node, Answer::Promised(end));
    }
    step(&mut failover, &mut catalogue);
    assert_eq!(catalogue.phase(), Some(Phase::Leading { node: 3, term }));
}

/// After an election a primary that is there is not given up before it can have asked, though no lease is left.
#[test]
fn a_new_consensus_leader_gives_the_primary_its_chance() {
    use Kind::Server;
    let catalogue = catalogue(&[Server, Server, Server]);
    let ms = 1_000_000;
    let begins = |replaced: Option<NodeId>, granted: u64| {
        let before = Before { granted, replaced };
        let mut failover = Failover::elected(Terms::default(), 5000 * ms, before);
        let at = (5000..).step_by(50).find(|at| {
            let done = failover.tick(&catalogue, at * ms);
            done.iter()
                .any(|a| matches!(a, Action::Propose(Command::Begin { .. })))
        });
        at.expect("it begins at last") - 5000
    };
    // Long silent, and missed by a majority.
    assert_eq!(begins(Some(1), 2000 * ms), 400);
    // A lease may be left.
    assert_eq!(begins(Some(1), 4000 * ms), 650);
    assert_eq!(begins(Some(1), 5000 * ms), 1650);
    // Another one led the consensus: nothing is known of the primary.
    assert_eq!(begins(Some(2), 2000 * ms), 1650);
    assert_eq!(begins(None, 2000 * ms), 1650);
}
