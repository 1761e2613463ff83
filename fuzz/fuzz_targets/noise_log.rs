//! Any bytes, as a log and behind the header of one.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tine::layer::fuzzing::read_noise(bytes));
