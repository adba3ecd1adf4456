//! What the sessions of a server ask of the process: time and chance as the library has them, the audit log, and another thread for
//! the core of a session that is about to block.

use embedded::host::EnvHost;
use std::time::Duration;

/// The server's.
pub struct ServerHost(EnvHost);

impl ServerHost {
    /// Over this clock and this chance.
    pub fn new(env: env::Env) -> ServerHost {
        ServerHost(EnvHost(env))
    }
}

impl sql::session::Host for ServerHost {
    fn unix_micros(&self) -> i64 {
        self.0.unix_micros()
    }

    fn monotonic_millis(&self) -> u64 {
        self.0.monotonic_millis()
    }

    fn random(&self, out: &mut [u8]) {
        self.0.random(out);
    }

    fn sleep(&self, time: Duration) {
        self.0.sleep(time);
    }

    fn audit(&self, deed: &sql::session::Deed<'_>) {
        crate::audit::deed(deed);
    }

    fn aside(&self) {
        crate::connections::cores::aside();
    }
}
