CREATE CONNECTION broker WITH (type = 'kafka', properties.bootstrap.server = '${BROKER}');
