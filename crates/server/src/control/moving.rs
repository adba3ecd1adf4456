//! A member that is started at another address than before: the members are told, and those that follow it look for it there.
//!
//! ```text
//! DIR/control/ADDRESS   where the founder was reached at its last start, by its own settings
//! ```
//! A server that has joined compares its address with what the members know. The founder may be known to them by another name than it has itself, as it was reached
//! under that when the cluster was founded. So it tells them only when its own settings have changed.
//!
//! Left out on purpose: all members that move at the same time. None of them can reach another one then.

use super::Seat;
use super::joining::join;
use super::seat::keep;
use crate::replication::{Place, Primary};
use ::cluster::{Catalogue, Phase};
use node::Role;
use std::io;
use std::sync::Arc;
use tracing::{info, warn};

const ADDRESS: &str = "ADDRESS";

impl Seat {
    /// Notes where this founder is.
    pub(super) fn note_address(&self) {
        let Some(own) = self.own_address() else {
            return;
        };
        if let Err(e) = keep(&self.dir, ADDRESS, own.as_bytes()) {
            warn!("the address of this server could not be noted: {e}");
        }
    }

    /// Tells the members where this founder is now, if that is elsewhere than at its last start.
    pub(super) async fn tell_address(self: Arc<Seat>) {
        let noted = tokio::task::block_in_place(|| std::fs::read(self.dir.join(ADDRESS)));
        let own = self.own_address();
        let moved = match &noted {
            Ok(noted) => own.is_some_and(|own| *noted != own.as_bytes()),
            // A build before this one has noted nothing.
            Err(e) if e.kind() == io::ErrorKind::NotFound => self.config.cluster_address.is_some(),
            Err(e) => return warn!("the address of this server could not be read: {e}"),
        };
        if moved {
            join(&self).await;
        }
        if moved || noted.is_err() {
            tokio::task::block_in_place(|| self.note_address());
        }
    }

    /// A replica looks for its primary where the members know it now. Another primary is followed when the member says so.
    pub(super) fn look_for_primary(&self, place: &Place, catalogue: &Catalogue) {
        let phase = catalogue.phase();
        let Some(Phase::Leading { node, .. }) = phase else {
            return;
        };
        if place.node.role() != Role::Replica || *self.followed.lock() != phase {
            return;
        }
        // One that holds it changes it just now; the next look sees what came of that.
        let Some(target) = self.target.try_lock() else {
            return;
        };
        let (Some(target), Some(member)) = (&*target, catalogue.members().get(&node)) else {
            return;
        };
        let Ok(at) = Primary::parse(&member.address) else {
            return;
        };
        let (host, port) = at.address();
        if target.set(host, port) {
            info!(primary = %member.address, "the primary is looked for at another address");
        }
    }
}
