//! What a primary does, and does not, when somebody wants to lead in its place.

use super::*;
use base::record::{CommitBuilder, RecordKind};
use node::NodeOptions;
use tokio::io::AsyncWriteExt;

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

/// It asks for the log again and again and reads none of it. What waits for it does not grow beyond what one answer adds.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_that_does_not_read_is_not_listened_to() {
    let scratch = tempfile::tempdir().expect("a directory");
    let senders = Arc::new(senders(scratch.path()));
    let node = senders.node.clone();
    let mut commits = Vec::new();
    for n in 0..10u64 {
        let (position, ticket) = node.order().begin().expect("it leads");
        let mut commit = CommitBuilder::new();
        let row = vec![0; 128 << 10];
        commit.push(RecordKind::Put, 16384, &n.to_be_bytes(), &row);
        let (heads, data) = commit.finish(position, 0);
        node.order().ready(ticket, heads, data);
        commits.push(position);
    }
    let (first, last) = (commits[0], commits[9]);
    while node.marks().flushed.get() < last {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let hello = Message::Hello {
        version: u16::from(replica::ship::VERSION),
        cluster: node.cluster(),
        node: "a".into(),
        terms: node.terms(),
        last: first,
        ring: 8 << 20,
    };
    let visitor = Visitor {
        user: 10,
        listen: None,
        member: None,
        number: None,
        leases: false,
        acks: false,
        full: false,
    };
    let origin = Origin {
        address: None,
        local: true,
    };
    let carrier = Carrier::new(senders.clone(), &origin, visitor, hello).await;
    let mut carrier = carrier.expect("greeted");
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let mut link = CopyBoth::new(near, vec![]).of_stranger();
    let resume = Message::Resume { from: first }.to_bytes();
    let len = (resume.len() as u32 + 4).to_be_bytes();
    let frame = [&b"d"[..], &len, &resume].concat();
    // Between two the log is sent, so that each counts as the first.
    let asks = async {
        for _ in 0..100 {
            far.write_all(&frame).await.expect("there is room");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        ended = carrier.run(&mut link) => ended.expect("it goes on"),
        () = asks => {}
    }
    let waits = link.pending();
    assert!(waits > 1 << 20, "it was sent the log: {waits}");
    assert!(waits < 24 << 20, "{waits} bytes wait");
}
