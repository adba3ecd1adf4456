//! The primary's end of a connection on which a replica reads its region: a request is a list of words, the answer their values, straight
//! from the atomics. No session, no transaction, no thread of its own: the task runs where the connection's core is.
//!
//! Its first message says where else the words are, for a replica on the same host (`shared`). Requests that came together are answered together: [`CopyBoth::next_as`] takes what has been read before it writes. Any node answers; the
//! term among the words says whether it is the primary (`base::region`). A primary of a cluster that runs itself says so only while it holds its lease: a replica that is cut
//! off together with it would read what it publishes no more.

use super::accept::copy_both;
use super::copy_both::broken;
use super::shared::Exposed;
use crate::connections::wire::{Stream, Wire};
use base::Result;
use base::region::{Region, TERM_WORD};
use replica::read::{decode_request, encode_answer, encode_place};

/// Serves a replica until it goes. `leads`: whether this node may serve strong reads, as far as it is the primary.
pub async fn serve<S: Stream>(
    wire: &mut Wire<S>,
    region: &Region,
    exposed: Option<&Exposed>,
    leads: impl Fn() -> bool,
) -> Result<()> {
    let mut link = copy_both(wire).await?;
    let (name, path) = exposed.map_or((0, ""), |e| (e.name, e.path().to_str().unwrap_or_default()));
    link.send_with(|out| encode_place(name, path, out));
    let mut values = Vec::new();
    loop {
        let request = link.next_as(decode_request).await?;
        values.clear();
        region
            .read(&request.words, &mut values)
            .ok_or_else(|| broken("there is no such word"))?;
        // Looked at afterwards: under the lease what was read then was the newest there was.
        if !leads() {
            let all = std::iter::zip(&request.words, &mut values);
            all.filter(|v| *v.0 == TERM_WORD).for_each(|v| *v.1 = 0);
        }
        link.send_with(|out| encode_answer(request.number, &values, out));
    }
}
