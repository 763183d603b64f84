-- The id of a definition, made from its key: the same in every cell, so that jobs can move between cells.
create or replace function fairlead.definition_id(key text) returns uuid language sql immutable parallel safe as $$
    -- version 8 and the variant of RFC 9562, for ids of an application's own making
    select overlay(overlay(left(encode(sha256(convert_to(key, 'UTF8')), 'hex'), 32) placing '8' from 13) placing '8' from 17)::uuid
$$;
