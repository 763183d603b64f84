-- How much of a bounded budget is used up, for all server processes together: requests of a token or a user, failed attempts
-- of an address or at an account. One moment says it all: when the whole budget is there again. What is lost in a crash is
-- given again, so nothing is written to the log of the database.
create unlogged table fairlead.allowances (
    key     text primary key,
    until   timestamptz not null,
    -- of the last request for a share, how much was given
    granted integer not null
) with (fillfactor = 50);
