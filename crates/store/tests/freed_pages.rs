//! Memory that rows have left stays with the process, and goes back to the system when it is told to.
#![cfg(feature = "mimalloc")]

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

/// `mi_option_purge_delay`: `store::keep_freed_pages` sets it.
const PURGE_DELAY: c_int = 15;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
    fn mi_option_get(option: c_int) -> c_long;
}

const MIB: u64 = 1 << 20;

/// What the process has more than before while there are rows, and when they have gone.
fn rows_come_and_go(before: u64) -> (u64, u64) {
    let rows: Vec<Vec<u8>> = (0..1_000_000).map(|_| vec![7; 200]).collect();
    let full = resident();
    drop(rows);
    (
        full.saturating_sub(before),
        resident().saturating_sub(before),
    )
}

#[test]
fn freed_pages_are_kept_and_go_back_when_asked() {
    // SAFETY: this is how the library declares them; the other test does not touch options.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
    let before = resident();
    let (full, freed) = rows_come_and_go(before);
    assert!(
        full > 150 * MIB && freed < 50 * MIB,
        "given back at once: {full} {freed}"
    );
    store::keep_freed_pages();
    // SAFETY: as above.
    assert!(unsafe { mi_option_get(PURGE_DELAY) } > 1_000_000);
    let (full, freed) = rows_come_and_go(before);
    assert!(
        full > 150 * MIB && freed > 150 * MIB,
        "kept: {full} {freed}"
    );
    store::give_pages_back();
    let after = resident().saturating_sub(before);
    assert!(after < 50 * MIB, "{full} {after}");
}

#[test]
fn rows_that_shrink_to_a_half_are_noticed_once() {
    let memory = store::Memory::default();
    memory.add(1 << 30);
    assert!(!memory.has_shrunk());
    memory.add(-(1 << 28));
    assert!(!memory.has_shrunk(), "three quarters are left");
    memory.add(-(1 << 29));
    assert!(memory.has_shrunk());
    assert!(!memory.has_shrunk());
}
