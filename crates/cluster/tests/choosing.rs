//! The decider of a fail-over, step by step: what stands in its way, and terms that were drawn by hand.

use cluster::failover::stands_in_the_way;
use cluster::{
    Action, Answer, Catalogue, Command, End, Failover, Kind, Member, NodeId, Obstacle, Phase, Terms,
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
    let mut failover = Failover::elected(Terms::default(), 0);
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
