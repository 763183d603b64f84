-- The other token of a lease: while a tenant is moved, its leases have these, so that no worker's report fits; swapped again
-- in the tenant's new cell, they are the workers' tokens. The function is its own inverse.
create or replace function fairlead.swap_token(token uuid) returns uuid language sql immutable parallel safe as $$
    select translate(token::text, '0123456789abcdef', 'fedcba9876543210')::uuid
$$;
