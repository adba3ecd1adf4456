//! `region`: what a replica and its primary send each other when the one reads the other's words, and the words that come.
//!
//! The first byte chooses: a request (to the primary), an answer (to the replica), a place (the primary's first message), or an
//! answer whose values are taken as they are for what a fetch brought.
//! Left out on purpose: the file of a place, which `server::replication` maps only when it has the right size and name.

use base::Position;
use base::region::{CLUSTER_WORDS, PUBLISHED_WORD, Region, TERM_WORD, bucket_slot};
use replica::read::{
    Ask, Check, Timestamps, Touch, decode_answer, decode_place, decode_request, encode_answer,
    encode_place, encode_request,
};
use std::sync::LazyLock;

const CLUSTER: u128 = 7 << 64 | 5;
const TERM: u64 = 3;

/// Accepted: exactly one message, which is written again as the same bytes; an answer brings a timestamp.
pub fn run(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    let mut again = Vec::new();
    match kind % 4 {
        0 => {
            static REGION: LazyLock<Region> = LazyLock::new(Region::default);
            let Ok(request) = decode_request(bytes) else {
                return false;
            };
            encode_request(request.number, &request.words, &mut again);
            let mut values = Vec::new();
            if REGION.read(&request.words, &mut values).is_some() {
                assert_eq!(values.len(), request.words.len(), "a value for each word");
            }
        }
        1 => {
            let Ok(answer) = decode_answer(bytes) else {
                return false;
            };
            encode_answer(answer.number, &answer.values, &mut again);
        }
        2 => {
            let Ok((name, path)) = decode_place(bytes) else {
                return false;
            };
            encode_place(name, &path, &mut again);
        }
        _ => return lands(bytes),
    }
    assert_eq!(again, bytes, "it is written as it was read");
    true
}

/// A fetch for a row is under way, and this comes back.
fn lands(bytes: &[u8]) -> bool {
    let touch = [Touch::Row(9, 11 << 32), Touch::Catalog];
    let mut timestamps = Timestamps::new(CLUSTER);
    let at = Position::from_u64(1 << 24);
    let check = timestamps.check(at, Position::from_u64(0), &touch);
    assert_eq!(check, Check::Missing);
    let fetches = timestamps.begin(1);
    assert_eq!(fetches.len(), 1, "{fetches:?}");
    let Ok(answer) = decode_answer(bytes) else {
        return false;
    };
    let Ok(published) = timestamps.landed(answer.number, &answer.values, TERM) else {
        assert_eq!(timestamps.begin(2), [], "nothing is asked after a refusal");
        assert!(!matches!(timestamps.ask(0, Vec::new), Ask::Known(_)));
        return false;
    };
    assert_eq!(timestamps.ask(0, Vec::new), Ask::Known(published));
    // What it says of the row holds up to what it says is published.
    if let Check::Wait(until, _) = timestamps.check(published, Position::from_u64(0), &touch) {
        assert!(until <= published, "{until} to read at {published}");
    }
    true
}

pub fn seeds() -> Vec<Vec<u8>> {
    let kind = |kind: u8, body: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = vec![kind];
        body(&mut bytes);
        bytes
    };
    let words = [
        TERM_WORD,
        CLUSTER_WORDS[0],
        PUBLISHED_WORD,
        bucket_slot(11 << 32),
    ];
    // Term, cluster, published, global, catalog, then the slots that were wanted, and the term again.
    let fetched = [TERM, 7, 5, 1 << 25, 1 << 24, 1 << 24, 1, 2, TERM];
    let mut all = vec![
        kind(0, &|out| encode_request(1, &words, out)),
        kind(0, &|out| encode_request(u64::MAX, &[], out)),
        kind(1, &|out| encode_answer(1, &[TERM, 5, 1 << 24, 7], out)),
        kind(2, &|out| encode_place(9, "/dev/shm/canon-region-9", out)),
        kind(2, &|out| encode_place(0, "", out)),
    ];
    // The first fetch has the number 1, and as many words as it likes.
    let landing = (5..12).map(|n| {
        let mut values = fetched[..fetched.len().min(n)].to_vec();
        values.resize(n, 1);
        values[n - 1] = TERM;
        kind(3, &|out| encode_answer(1, &values, out))
    });
    all.extend(landing.filter(|bytes| lands(&bytes[1..])));
    assert_eq!(all.len(), 6, "one length is that of the fetch");
    all
}
