//! Real logs and real lies: what an honest node shows proves its claim at every end, and each way to lie about it does not.

use super::super::evidence::{Unproven, proven};
use super::super::standing::Ours;
use super::*;
use wal::around::{Around, Header};

const TERMS: &[(u64, Position)] = &[(1, Position::ZERO), (5, Position::from_u64(1 << 24))];
const SMALL: u64 = 4 << 10;

fn ours() -> Ours<'static> {
    Ours {
        terms: TERMS,
        lives: &[],
        last: Position::ZERO,
    }
}

/// Where group `g` ends.
fn end(g: u32) -> Position {
    p(g * 3 + 2)
}

/// A primary that has lost all behind group 3, and what a node with 30 groups shows it.
fn lost() -> (Around, Around) {
    let [here, there] = [4, 30].map(|n| log(CLUSTER, &vec![5; n], SMALL, 0));
    let [own, shown] = [here, there].map(|d| d.around(end(3)).unwrap());
    (own, shown)
}

fn check(own: &Around, shown: &Around) -> Result<(), Unproven> {
    proven(ours(), CLUSTER, end(3), own, shown)
}

/// The same header, changed, with a checksum that is right again.
fn forged(header: &Header, change: impl Fn(&mut Header)) -> Option<Header> {
    let mut bytes = *header;
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes[..124]);
    bytes[124..].copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

fn put(at: usize, bytes: &[u8]) -> impl Fn(&mut Header) {
    move |h| h[at..at + bytes.len()].copy_from_slice(bytes)
}

#[test]
fn an_honest_node_proves_it_at_every_end() {
    let there = log(CLUSTER, &[5; 30], SMALL, 0);
    let mut first_in_segment = 0;
    for g in 0..29u32 {
        let here = log(CLUSTER, &vec![5; g as usize + 1], SMALL, 0);
        // Its own end, and holes behind it.
        for at in [end(g), end(g).next()] {
            let (own, shown) = (here.around(at).unwrap(), there.around(at).unwrap());
            assert!(own.next.is_none() && own.at.is_some());
            assert_eq!(proven(ours(), CLUSTER, at, &own, &shown), Ok(()), "{g}");
            first_in_segment += u32::from(shown.segment.is_some());
            // A primary whose log is gone but for a checkpoint.
            let gone = Around::default();
            assert_eq!(proven(ours(), CLUSTER, at, &gone, &shown), Ok(()));
        }
    }
    assert!(first_in_segment >= 4, "{first_in_segment}");
}

#[test]
fn a_node_whose_log_begins_later_shows_its_checkpoint() {
    let there = log(CLUSTER, &[5; 30], SMALL, 0);
    let checkpoint = there.begin_checkpoint(end(20)).unwrap();
    checkpoint.finish(end(25)).unwrap();
    assert!(there.prune(end(20)).unwrap() > 0);
    let own = log(CLUSTER, &[5; 4], SMALL, 0).around(end(3)).unwrap();
    let shown = there.around(end(3)).unwrap();
    assert!(shown.at.is_none() && shown.segment.is_some());
    assert_eq!(check(&own, &shown), Ok(()));
    for without in [
        Around {
            checkpoint: None,
            ..shown.clone()
        },
        Around {
            segment: None,
            ..shown.clone()
        },
    ] {
        assert!(check(&own, &without).is_err(), "{without:?}");
    }
    let alone = |d: &DataDir, at| Around {
        checkpoint: d.around(at).unwrap().checkpoint,
        ..Around::default()
    };
    assert_eq!(check(&own, &alone(&there, end(3))), Ok(()));
    // One that lies below, and one of another cluster.
    let other = log(CLUSTER + 1, &[], SMALL, 0);
    let checkpoint = other.begin_checkpoint(end(20)).unwrap();
    checkpoint.finish(end(20)).unwrap();
    assert!(check(&own, &alone(&other, end(3))).is_err());
    let below = log(CLUSTER, &[], SMALL, 0);
    below
        .begin_checkpoint(end(3))
        .unwrap()
        .finish(end(9))
        .unwrap();
    assert!(check(&own, &alone(&below, end(3))).is_err());
}

#[test]
fn another_history_proves_nothing() {
    let own = log(CLUSTER, &[5; 4], SMALL, 0).around(end(3)).unwrap();
    // Two copies of one directory that both wrote on, in one term.
    let copy = log(CLUSTER, &[5; 30], SMALL, 1);
    let shown = copy.around(end(3)).unwrap();
    let why = "the group at the end of this log is another one there";
    assert_eq!(check(&own, &shown), Err(why));
    // Of another cluster; and in a term that is not this primary's there.
    let other = log(CLUSTER + 1, &[5; 30], SMALL, 0);
    assert!(check(&own, &other.around(end(3)).unwrap()).is_err());
    let terms: Vec<u64> = (0..30).map(|g| if g < 4 { 5 } else { 6 }).collect();
    let newer = log(CLUSTER, &terms, SMALL, 0).around(end(3)).unwrap();
    assert_eq!(
        check(&own, &newer),
        Err("the next group is of another term")
    );
}

#[test]
fn each_lie_is_found() {
    let (own, honest) = lost();
    assert_eq!(check(&own, &honest), Ok(()));
    // A primary whose log ends before its checkpoint does.
    let short = log(CLUSTER, &[5; 2], SMALL, 0).around(end(3)).unwrap();
    assert_eq!(check(&short, &honest), Ok(()));
    let (at, next) = (honest.at.unwrap(), honest.next.unwrap());
    let lie = |at: Option<Header>, next: Option<Header>| Around {
        at,
        next,
        ..honest.clone()
    };
    let changes: &[(&str, usize, &[u8])] = &[
        ("cluster", 16, &[1]),
        ("term", 32, &6u64.to_le_bytes()),
        ("segment", 40, &9u64.to_le_bytes()),
        ("offset", 48, &9_000u64.to_le_bytes()),
        ("chain", 112, &[1, 2, 3, 4]),
    ];
    let mut lies = vec![
        ("nothing", Around::default()),
        ("no next", lie(Some(at), None)),
        ("no end", lie(None, Some(next))),
        ("the end twice", lie(Some(at), Some(at))),
        ("in another order", lie(Some(next), Some(at))),
        ("next alone", lie(Some(next), Some(next))),
        ("zeros", lie(Some([0; 128]), Some([0; 128]))),
    ];
    for (what, offset, bytes) in changes {
        lies.push((what, lie(Some(at), forged(&next, put(*offset, bytes)))));
    }
    // The rows of the end are others, under the same positions.
    for offset in [12, 64, 104, 108] {
        let other = forged(&at, put(offset, &[0x5a]));
        let crc: [u8; 4] = other.unwrap()[124..].try_into().unwrap();
        let chained = forged(&next, put(112, &crc));
        lies.push(("rows of the end", lie(other, chained)));
    }
    for (what, shown) in lies {
        assert!(check(&own, &shown).is_err(), "{what}: {shown:?}");
    }
    // One bit wrong, anywhere, and no checksum that makes it good.
    for bit in 0..128 * 8 {
        let mut damaged = next;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&own, &lie(Some(at), Some(damaged))).is_err(), "{bit}");
        let mut damaged = at;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&own, &lie(Some(damaged), Some(next))).is_err());
    }
}
