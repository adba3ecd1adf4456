//! Memory of another node, read by words.
//!
//! Shaped after one-sided RDMA (SCC §4.2, "Considerations for one-sided RDMA"): a reader names words, computed from what it looks for, and
//! gets their values; the other side has no code that knows what they mean. One request is one read of them all, **in order**: the value
//! of a later word was there after that of an earlier one. Over TCP a task at the primary loads the words and answers; in shared memory the
//! reader loads them itself. A network card would do the same with one chained read per word and nobody at the other end.
//!
//! ```text
//! request  | number u64 | words: u32 each  |
//! answer   | number u64 | values: u64 each |       little-endian; a message each
//! place    | name u64   | path |                   the primary's first: a file that has the same words, for who is on its host
//! ```
//!
//! Left out on purpose: RDMA itself (no such hardware was at hand), and writing: the log is sent as messages.

use std::future::Future;
use std::io;
use std::pin::Pin;

/// Values of words, when they come.
pub type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u64>>> + Send>>;

/// See the head of the file.
pub trait RemoteMemory: Send + Sync {
    /// The values of these words, read in this order. An error: nothing can be read, now or any more.
    fn read(&self, words: Vec<u32>) -> Reading;
}

/// Most words of one request.
pub const MOST_WORDS: usize = 4096;

/// A request: its number, and the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub number: u64,
    pub words: Vec<u32>,
}

/// An answer: the request's number, and the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub number: u64,
    pub values: Vec<u64>,
}

/// Appends the bytes of a request.
pub fn encode_request(number: u64, words: &[u32], out: &mut Vec<u8>) {
    assert!(words.len() <= MOST_WORDS, "{} words at once", words.len());
    out.extend_from_slice(&number.to_le_bytes());
    words
        .iter()
        .for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

/// Appends the bytes of an answer.
pub fn encode_answer(number: u64, values: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
    values
        .iter()
        .for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
}

/// Appends the bytes of a place: where else the words are, and their name; no path: nowhere.
pub fn encode_place(name: u64, path: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&name.to_le_bytes());
    out.extend_from_slice(path.as_bytes());
}

/// Reads a place.
pub fn decode_place(bytes: &[u8]) -> Result<(u64, String), &'static str> {
    let (name, path) = bytes.split_first_chunk().ok_or("a place without a name")?;
    let path = std::str::from_utf8(path).map_err(|_| "a path that is no text")?;
    Ok((u64::from_le_bytes(*name), path.to_owned()))
}

/// Reads a request.
pub fn decode_request(bytes: &[u8]) -> Result<Request, &'static str> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or("a request without a number")?;
    let (words, left) = rest.as_chunks::<4>();
    if !left.is_empty() || words.len() > MOST_WORDS {
        return Err("a request of an impossible length");
    }
    Ok(Request {
        number: u64::from_le_bytes(*number),
        words: words.iter().map(|w| u32::from_le_bytes(*w)).collect(),
    })
}

/// Reads an answer.
pub fn decode_answer(bytes: &[u8]) -> Result<Answer, &'static str> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or("an answer without a number")?;
    let (values, left) = rest.as_chunks::<8>();
    if !left.is_empty() || values.len() > MOST_WORDS {
        return Err("an answer of an impossible length");
    }
    Ok(Answer {
        number: u64::from_le_bytes(*number),
        values: values.iter().map(|v| u64::from_le_bytes(*v)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_rubbish_is_refused() {
        let mut bytes = Vec::new();
        encode_request(7, &[3, 8, 70_000], &mut bytes);
        let r = decode_request(&bytes).unwrap();
        assert_eq!((r.number, &r.words[..]), (7, &[3, 8, 70_000][..]));
        assert!(decode_request(&bytes[..bytes.len() - 1]).is_err());
        let mut bytes = Vec::new();
        encode_answer(7, &[u64::MAX, 0], &mut bytes);
        let a = decode_answer(&bytes).unwrap();
        assert_eq!((a.number, &a.values[..]), (7, &[u64::MAX, 0][..]));
        assert!(decode_answer(&bytes[..9]).is_err());
        assert!(decode_answer(&[]).is_err() && decode_request(&[1]).is_err());
        assert!(decode_request(&vec![0; 8 + 4 * MOST_WORDS + 4]).is_err());
        let mut bytes = Vec::new();
        encode_place(9, "/x/y", &mut bytes);
        assert_eq!(decode_place(&bytes), Ok((9, "/x/y".into())));
        assert!(decode_place(&[0; 7]).is_err() && decode_place(&[255; 9]).is_err());
    }
}
