//! A log that was damaged shows what it held, or is refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tine::layer::fuzzing::read_damaged(bytes));
