//! The primary's end of a connection on which a replica reads its region: a request is a list of words, the answer their values, straight
//! from the atomics. No session, no transaction, no thread of its own: the task runs where the connection's core is.
//!
//! Requests that came together are answered together: [`CopyBoth::next_as`] takes what has been read before it writes. Any node answers; the
//! term among the words says whether it is the primary (`base::region`).

use super::copy_both::broken;
use super::send::copy_both;
use crate::gate::wire::{Stream, Wire};
use base::Result;
use base::region::Region;
use replica::read::{decode_request, encode_answer};

/// The command that turns a connection over.
pub const COMMAND: &str = "READ_REGION";

/// Serves a replica until it goes.
pub async fn serve<S: Stream>(wire: &mut Wire<S>, region: &Region) -> Result<()> {
    let mut link = copy_both(wire).await?;
    let mut values = Vec::new();
    loop {
        let request = link.next_as(decode_request).await?;
        values.clear();
        region
            .read(&request.words, &mut values)
            .ok_or_else(|| broken("there is no such word"))?;
        link.send_with(|out| encode_answer(request.number, &values, out));
    }
}
