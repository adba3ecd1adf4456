//! `certify`: what a site and its primary say to each other, the candidate that is to be certified included.

use base::footprint::{FoundBy, MoveEntry, WriteEntry};
use base::{Candidate, Error, Footprint, Isolation, Position, SqlState};
use node::Numbers;
use node::site_words::{Answer, Asked, Certify, Draw, decode_answer, decode_asked};
use txn::Durability;

/// The first byte chooses what a site asks, or what it is answered. Accepted: what is written again as the same bytes.
pub fn run(bytes: &[u8]) -> bool {
    let Some((choice, said)) = bytes.split_first() else {
        return false;
    };
    let mut again = Vec::new();
    match choice % 2 {
        0 => {
            let Ok(asked) = decode_asked(said) else {
                return false;
            };
            match &asked {
                Asked::Certify(c) => {
                    c.encode(&mut again);
                    candidate(&c.candidate);
                }
                Asked::Draw(d) => d.encode(&mut again),
            }
        }
        _ => match decode_answer(said) {
            Ok(answer) => answer.encode(&mut again),
            Err(_) => return false,
        },
    }
    assert_eq!(again, said, "it is written as it was read");
    true
}

/// What is read says the same when it is written anew.
fn candidate(bytes: &[u8]) {
    if let Some(candidate) = Candidate::decode(bytes) {
        let written = candidate.encode();
        let again = Candidate::decode(&written).expect("it was taken before");
        assert_eq!(format!("{again:?}"), format!("{candidate:?}"));
        assert!(candidate.footprint.writes.len() <= bytes.len());
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let at = Position::new(4, 9);
    let write = WriteEntry {
        storage: 7,
        key: (*b"k").into(),
        overwrites: at,
        existed: true,
        row: None,
        moved: vec![MoveEntry {
            column: 3,
            amount: -7,
            need: Some(7),
        }],
        found_by: vec![FoundBy {
            columns: 6,
            row: (*b"seen").into(),
        }],
    };
    let row = WriteEntry {
        existed: false,
        row: Some((*b"row").into()),
        moved: vec![],
        found_by: vec![],
        ..write.clone()
    };
    let candidate = Candidate {
        number: 99,
        level: Isolation::Serializable,
        since: at,
        used: Some(vec![17, 16_400]),
        footprint: Footprint {
            snapshot: at,
            hold: 0,
            reads: vec![],
            ranges: vec![],
            writes: vec![write, row],
        },
    };
    let certify = |again, durability| Certify {
        number: 99,
        term: 7,
        again,
        durability,
        candidate: candidate.encode(),
    };
    let draw = Draw {
        sequence: 17,
        term: 7,
        count: 64,
    };
    let e = Error::new(SqlState::SERIALIZATION_FAILURE, "lost")
        .detail("the key (1)")
        .hint("again")
        .table("public", "t")
        .constraint("t_pkey");
    let numbers = Numbers {
        first: -3,
        increment: -7,
        count: 32,
        at,
    };
    let mut all = vec![vec![0]; 3];
    certify(None, Durability::On).encode(&mut all[0]);
    certify(Some(at), Durability::RemoteApply).encode(&mut all[1]);
    draw.encode(&mut all[2]);
    for answer in [
        Answer::IAm,
        Answer::Committed(6, at),
        Answer::Refused(3, at, e.clone()),
        Answer::Later(5),
        Answer::Numbers(7, numbers),
        Answer::NoNumbers(8, e),
        Answer::DrawLater(9),
    ] {
        let mut bytes = vec![1];
        answer.encode(&mut bytes);
        all.push(bytes);
    }
    all
}
