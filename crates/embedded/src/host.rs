//! Time and chance for sessions, from `env`.

use std::time::Duration;

/// The operating system's.
pub struct EnvHost(pub env::Env);

impl sql::session::Host for EnvHost {
    fn unix_micros(&self) -> i64 {
        self.0.clock.unix_micros()
    }

    fn monotonic_millis(&self) -> u64 {
        self.0.clock.monotonic_nanos() / 1_000_000 + 1
    }

    fn random(&self, out: &mut [u8]) {
        self.0.random.fill(out);
    }

    fn sleep(&self, time: Duration) {
        self.0.clock.sleep(time);
    }

    #[cfg(feature = "wire")]
    fn audit(&self, deed: &sql::session::Deed<'_>) {
        crate::audit::deed(deed);
    }

    fn aside(&self) {
        #[cfg(feature = "wire")]
        crate::gate::cores::aside();
    }
}
