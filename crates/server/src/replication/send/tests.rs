//! What a primary does, and does not, when somebody wants to lead in its place.

use super::*;
use node::NodeOptions;

fn senders(path: &std::path::Path) -> Senders {
    let node = Node::open(path, NodeOptions::default()).expect("a node");
    let flags = crate::config::Overrides {
        data: Some(path.to_owned()),
        ..Default::default()
    };
    let config = crate::config::Config::load(&flags).expect("defaults");
    let member = Membership::of(&config, &Env::os()).expect("a secret");
    Senders::new(
        Arc::new(node),
        Env::os(),
        None,
        None,
        true,
        Arc::new(member),
    )
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

#[test]
fn a_replica_is_where_it_listens_as_seen_from_here() {
    for (listen, from, wanted) in [
        (
            "0.0.0.0:5433",
            Some("10.0.0.2:40000"),
            Some("10.0.0.2:5433"),
        ),
        (
            "[::]:5433",
            Some("[::ffff:10.0.0.2]:40000"),
            Some("10.0.0.2:5433"),
        ),
        (
            "[::]:5433",
            Some("[2001:db8::2]:40000"),
            Some("[2001:db8::2]:5433"),
        ),
        (
            "10.1.0.2:5433",
            Some("10.0.0.2:40000"),
            Some("10.1.0.2:5433"),
        ),
        (
            "127.0.0.1:5433",
            Some("127.0.0.1:40000"),
            Some("127.0.0.1:5433"),
        ),
        ("127.0.0.1:5433", Some("10.0.0.2:40000"), None),
        ("0.0.0.0:5433", None, None),
    ] {
        let at = |a: &str| a.parse().expect("an address");
        let found = reached_at(Some(at(listen)), from.map(at));
        assert_eq!(found, wanted.map(at), "{listen} {from:?}");
    }
    assert_eq!(reached_at(None, "10.0.0.2:1".parse().ok()), None);
}
