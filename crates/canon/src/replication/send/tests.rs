//! What a primary does, and does not, when somebody wants to lead in its place.

use super::*;
use node::NodeOptions;

fn senders(path: &std::path::Path) -> Senders {
    let node = Node::open(path, NodeOptions::default()).expect("a node");
    Senders::new(Arc::new(node), Env::os(), None, true)
}

#[test]
fn a_hand_over_to_who_has_gone_seals_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let s = senders(scratch.path());
    assert!(s.hand_over(7, "heir").is_err());
    assert_eq!(s.node.role(), Role::Primary);
    assert_eq!(s.node.dir().sealed_for().expect("readable"), None);
    let peer = Peer {
        user: 10,
        address: None,
        received: Freshness::default(),
        persisted: Freshness::default(),
        visible: Freshness::default(),
    };
    s.peers.lock().insert(7, peer);
    assert!(matches!(s.hand_over(7, "heir"), Ok(Read::Sealed(_))));
    assert_eq!(s.node.role(), Role::Sealed);
}

#[test]
fn who_has_heard_of_a_newer_term_does_not_forget_it() {
    let scratch = tempfile::tempdir().expect("a directory");
    let s = senders(scratch.path());
    let term = s.node.term();
    s.depose(term + 9);
    assert_eq!(s.node.role(), Role::Sealed);
    drop(s);
    let s = senders(scratch.path());
    assert_eq!((s.node.term(), s.node.heard_term()), (term, term + 9));
}
