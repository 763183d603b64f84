-- One more duty: sessions that are over and answers that nobody will ask for again are forgotten.
insert into fairlead.duties (name) values ('expired');
